//! The index: facts of engines in, depths of engines out. What is written down where is in `shards`.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

use parking_lot::Mutex;

use crate::found::Found;
use crate::search::search;
use crate::shards::{BOTH, HBM, Shards, Writer};
use crate::snapshot::{Planes, Snapshot};

pub use crate::shards::SHARDS;
/// Bytes of an announced chunk (u64 hash, u32 tokens, packed) and of a hash alone.
pub const ANNOUNCED: usize = 12;
pub const HASH: usize = 8;
/// So many items ahead their cache lines are asked for.
const AHEAD: usize = 12;
/// So many items are written before another writer gets its turn: some 20 us.
const TURN: usize = 512;

#[derive(Clone, Copy, PartialEq)]
pub enum Tier {
    Hbm,
    Any,
}

impl Tier {
    fn planes_announced(self) -> Planes {
        if self == Tier::Hbm { BOTH } else { 0b10 }
    }

    fn planes_withdrawn(self) -> Planes {
        if self == Tier::Hbm { HBM } else { BOTH }
    }
}

pub struct Index {
    shards: Shards,
    entries_max: usize,
    snapshots: Mutex<HashMap<u32, Snapshot>>,
    open: AtomicUsize,
}

impl Index {
    /// `entries_max` is at least `SHARDS`.
    pub fn new(entries_max: usize) -> Index {
        Index {
            shards: Shards::new(entries_max / SHARDS),
            entries_max,
            snapshots: Mutex::new(HashMap::new()),
            open: AtomicUsize::new(0),
        }
    }

    pub fn entries(&self) -> usize {
        self.shards.live()
    }

    pub fn dropped(&self) -> u64 {
        self.shards.dropped() as u64
    }

    pub fn apply(&self, engine: u32, announced: &[u8], withdrawn: &[u8], tier: Tier) {
        let (told, gone) = (tier.planes_announced(), tier.planes_withdrawn());
        self.each(announced, ANNOUNCED, |writer, item| {
            writer.hold(engine, hash(item), tokens(item), told);
        });
        self.each(withdrawn, HASH, |writer, item| writer.release(engine, hash(item), gone));
        if self.open.load(Acquire) > 0 {
            self.settle(engine, announced, withdrawn, tier);
        }
    }

    pub fn clear(&self, engine: u32) {
        self.close(engine);
        self.shards.retain(engine, |_| 0);
    }

    pub fn snapshot_begin(&self, engine: u32, seq: u64) {
        let mut open = self.snapshots.lock();
        open.insert(engine, Snapshot::new(seq));
        self.open.store(open.len(), Release);
    }

    pub fn snapshot_part(&self, engine: u32, seq: u64, announced: &[u8], tier: Tier) -> bool {
        let mut open = self.snapshots.lock();
        let Some(snapshot) = open.get_mut(&engine).filter(|snapshot| snapshot.seq == seq) else {
            return false;
        };
        if snapshot.told.len() + announced.len() / ANNOUNCED > self.entries_max {
            open.remove(&engine);
            self.open.store(open.len(), Release);
            return false;
        }
        self.each(announced, ANNOUNCED, |writer, item| {
            if hash(item) != 0 {
                let planes = snapshot.tell(hash(item), tier.planes_announced());
                writer.hold(engine, hash(item), tokens(item), planes);
            }
        });
        true
    }

    pub fn snapshot_end(&self, engine: u32, seq: u64) -> bool {
        let open = self.snapshots.lock().get(&engine).is_some_and(|snapshot| snapshot.seq == seq);
        if !open {
            return false;
        }
        if let Some(snapshot) = self.close(engine) {
            self.shards.retain(engine, |key| snapshot.told.get(&key).map_or(0, |said| said.held));
        }
        true
    }

    /// Add to `found` who holds how much of `chain`: whole u64 hashes, little-endian.
    pub fn lookup(&self, chain: &[u8], found: &mut Found) {
        search(&self.shards, chain, found);
    }

    fn settle(&self, engine: u32, announced: &[u8], withdrawn: &[u8], tier: Tier) {
        let mut open = self.snapshots.lock();
        let Some(snapshot) = open.get_mut(&engine) else { return };
        for item in announced.chunks_exact(ANNOUNCED).filter(|item| hash(item) != 0) {
            snapshot.settle(hash(item), tier.planes_announced(), true);
        }
        for item in withdrawn.chunks_exact(HASH).filter(|item| hash(item) != 0) {
            snapshot.settle(hash(item), tier.planes_withdrawn(), false);
        }
        if snapshot.told.len() > self.entries_max {
            open.remove(&engine);
            self.open.store(open.len(), Release);
        }
    }

    fn close(&self, engine: u32) -> Option<Snapshot> {
        let mut open = self.snapshots.lock();
        let closed = open.remove(&engine);
        self.open.store(open.len(), Release);
        closed
    }

    fn each(&self, items: &[u8], size: usize, mut act: impl FnMut(&mut Writer<'_>, &[u8])) {
        for turn in items.chunks(TURN * size) {
            let mut writer = self.shards.write();
            turn.chunks_exact(size).take(AHEAD).for_each(|item| writer.prefetch(hash(item)));
            for (n, item) in turn.chunks_exact(size).enumerate() {
                if let Some(ahead) = turn.get((n + AHEAD) * size..(n + AHEAD + 1) * size) {
                    writer.prefetch(hash(ahead));
                }
                act(&mut writer, item);
            }
        }
    }
}

pub(crate) fn hash(item: &[u8]) -> u64 {
    let mut bytes = [0; HASH];
    bytes.copy_from_slice(&item[..HASH]);
    u64::from_le_bytes(bytes)
}

fn tokens(item: &[u8]) -> u32 {
    let mut bytes = [0; ANNOUNCED - HASH];
    bytes.copy_from_slice(&item[HASH..ANNOUNCED]);
    u32::from_le_bytes(bytes)
}
