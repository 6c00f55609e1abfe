//! The index: 256 shards by the top byte of the hash. Readers take no lock and never wait: they
//! are pinned to an epoch, and tables and holder sets that were replaced are freed once nobody who
//! was pinned then still is. Each shard has one writer at a time.

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned};
use parking_lot::Mutex;

use crate::found::Found;
use crate::holders::{self, Change, Level};
use crate::snapshot::{Planes, Snapshot};
use crate::table::{Probe, Slot, Table};

pub const SHARDS: usize = 256;
/// Bytes of an announced chunk (u64 hash, u32 tokens, packed) and of a hash alone.
pub const ANNOUNCED: usize = 12;
pub const HASH: usize = 8;
/// Making room in a full shard frees one in so many entries.
const ROOM_SHARE: usize = 16;
/// Garbage is collected whenever so much more of it is there: one bag of the epochs.
const BAG: usize = 64;
/// Bags that one collection frees.
const BAGS_A_COLLECTION: usize = 8;
/// From so many freed holder sets on, some MB, what the allocator keeps of them goes back too.
const TRIM_FROM: usize = 1 << 16;
/// So many items ahead their cache lines are asked for.
const AHEAD: usize = 12;

#[derive(Clone, Copy, PartialEq)]
pub enum Tier {
    Hbm,
    Any,
}

const HBM: Planes = 0b01;
const BOTH: Planes = 0b11;

impl Tier {
    fn planes_announced(self) -> Planes {
        if self == Tier::Hbm { BOTH } else { 0b10 }
    }

    fn planes_withdrawn(self) -> Planes {
        if self == Tier::Hbm { HBM } else { BOTH }
    }
}

/// A cache line of its own: writers of one shard leave readers of the others alone.
#[repr(align(64))]
struct Shard {
    table: Atomic<Table>,
    live: AtomicUsize,
    writer: Mutex<Writer>,
}

/// Slots of the table that are used, dead ones included.
struct Writer {
    used: usize,
}

pub struct Index {
    shards: Box<[Shard]>,
    entries_max: usize,
    shard_max: usize,
    dropped: AtomicU64,
    /// Holder sets that were replaced, so far.
    retired: AtomicUsize,
    snapshots: Mutex<HashMap<u32, Snapshot>>,
    open: AtomicUsize,
}

impl Index {
    /// `entries_max` is at least `SHARDS`.
    pub fn new(entries_max: usize) -> Index {
        let shard = || Shard {
            table: Atomic::new(Table::for_live(0)),
            live: AtomicUsize::new(0),
            writer: Mutex::new(Writer { used: 0 }),
        };
        Index {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            entries_max,
            shard_max: entries_max / SHARDS,
            dropped: AtomicU64::new(0),
            retired: AtomicUsize::new(0),
            snapshots: Mutex::new(HashMap::new()),
            open: AtomicUsize::new(0),
        }
    }

    pub fn entries(&self) -> usize {
        self.shards.iter().map(|shard| shard.live.load(Relaxed)).sum()
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub fn apply(&self, engine: u32, announced: &[u8], withdrawn: &[u8], tier: Tier) {
        let guard = &epoch::pin();
        self.each(guard, announced, ANNOUNCED, |item| {
            self.hold(guard, engine, hash(item), tokens(item), tier.planes_announced());
        });
        self.each(guard, withdrawn, HASH, |item| {
            self.release(guard, engine, hash(item), tier.planes_withdrawn());
        });
        if self.open.load(Acquire) > 0 {
            self.settle(engine, announced, withdrawn, tier);
        }
    }

    pub fn clear(&self, engine: u32) {
        self.close(engine);
        self.retain(engine, |_| 0);
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
        let guard = &epoch::pin();
        self.each(guard, announced, ANNOUNCED, |item| {
            if hash(item) != 0 {
                let planes = snapshot.tell(hash(item), tier.planes_announced());
                self.hold(guard, engine, hash(item), tokens(item), planes);
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
            self.retain(engine, |key| snapshot.told.get(&key).map_or(0, |said| said.held));
        }
        true
    }

    /// The deepest chunk first, then the spans between known chunks by halves: where nobody new
    /// holds the upper end, nobody new holds anything within.
    pub fn lookup(&self, chain: &[u8], found: &mut Found) {
        let length = chain.len() / HASH;
        if length == 0 {
            return;
        }
        let guard = &epoch::pin();
        self.prefetch(guard, hash(&chain[(length - 1) * HASH..]));
        let first = self.entry(guard, chain, 0);
        if first.is_none() {
            return;
        }
        if let Some((word, slot)) = self.entry(guard, chain, length - 1) {
            // SAFETY: read under `guard`.
            unsafe { found.add(word, slot.tokens, length as u32) };
        }
        self.search(guard, chain, found, (0, first), length - 1);
    }

    /// Between position `i` with its entry, and `j`, at and beyond which all is found.
    fn search<'g>(
        &self,
        guard: &'g Guard,
        chain: &[u8],
        found: &mut Found,
        (i, entry): (usize, Option<(u64, Slot<'g>)>),
        j: usize,
    ) {
        let Some((word, slot)) = entry else { return };
        if j <= i + 1 {
            // SAFETY: read under `guard`.
            unsafe { found.add(word, slot.tokens, i as u32 + 1) };
            return;
        }
        // SAFETY: read under `guard`.
        if !unsafe { found.lacks(word) } {
            return;
        }
        let middle = usize::midpoint(i, j);
        self.search(guard, chain, found, (middle, self.entry(guard, chain, middle)), j);
        self.search(guard, chain, found, (i, entry), middle);
    }

    fn entry<'g>(&self, guard: &'g Guard, chain: &[u8], at: usize) -> Option<(u64, Slot<'g>)> {
        let key = hash(&chain[at * HASH..]);
        match self.shard(key).table(guard).probe(key) {
            Probe::Live(slot, word) => Some((word, slot)),
            Probe::Empty(_) => None,
        }
    }

    fn hold(&self, guard: &Guard, engine: u32, key: u64, tokens: u32, planes: Planes) {
        if key == 0 || planes == 0 {
            return;
        }
        let shard = self.shard(key);
        let mut writer = shard.writer.lock();
        let level = if planes & HBM != 0 { 2 } else { 1 };
        let alone = u64::from(holders::code(engine, level == 2));
        match shard.table(guard).probe(key) {
            Probe::Live(slot, word) => {
                if tokens < slot.tokens.load(Relaxed) {
                    slot.tokens.store(tokens, Release);
                }
                if word != alone {
                    self.change(guard, slot, word, engine, |before| before.max(level));
                }
                return;
            }
            Probe::Empty(slot) if writer.used < shard.table(guard).used_max => {
                slot.publish(key, alone, tokens);
            }
            Probe::Empty(_) => {
                let live = shard.live.load(Relaxed);
                shard.rebuild(guard, &mut writer, live + 1);
                if let Probe::Empty(slot) = shard.table(guard).probe(key) {
                    slot.publish(key, alone, tokens);
                }
            }
        }
        writer.used += 1;
        let live = shard.live.load(Relaxed) + 1;
        shard.live.store(live, Relaxed);
        if live > self.shard_max {
            let too_many = live - (self.shard_max - self.shard_max / ROOM_SHARE);
            for (slot, word) in shard.deepest(guard, too_many) {
                slot.word.store(0, Release);
                self.retire(guard, word);
            }
            shard.live.store(live - too_many, Relaxed);
            self.dropped.fetch_add(too_many as u64, Relaxed);
        }
    }

    fn release(&self, guard: &Guard, engine: u32, key: u64, planes: Planes) {
        if key == 0 {
            return;
        }
        let shard = self.shard(key);
        let mut writer = shard.writer.lock();
        if let Probe::Live(slot, word) = shard.table(guard).probe(key)
            && self.change(guard, slot, word, engine, |before| lowered(before, planes)) == 0
        {
            let live = shard.live.load(Relaxed) - 1;
            shard.live.store(live, Relaxed);
            shard.shrink(guard, &mut writer, live);
        }
    }

    /// Of what `engine` holds leave the planes that `kept` says. One shard after the other, so that
    /// a writer waits for one of them at most.
    fn retain(&self, engine: u32, kept: impl Fn(u64) -> Planes) {
        let before = self.retired.load(Relaxed);
        for shard in &self.shards {
            let guard = &epoch::pin();
            let mut writer = shard.writer.lock();
            let mut live = shard.live.load(Relaxed);
            for (key, word, slot) in shard.table(guard).live() {
                let planes = BOTH & !kept(key);
                if self.change(guard, slot, word, engine, |before| lowered(before, planes)) == 0 {
                    live -= 1;
                }
            }
            shard.live.store(live, Relaxed);
            shard.shrink(guard, &mut writer, live);
        }
        let retired = self.retired.load(Relaxed) - before;
        collect(retired + SHARDS * BAG);
        if retired >= TRIM_FROM {
            trim();
        }
    }

    /// Publish what `engine` holds now; 0 when nobody holds the chunk any more. The shard is locked.
    fn change(
        &self,
        guard: &Guard,
        slot: Slot<'_>,
        word: u64,
        engine: u32,
        next: impl Fn(Level) -> Level,
    ) -> u64 {
        // SAFETY: the word was read under `guard`; its shard's lock is held.
        match unsafe { holders::change(word, engine, next) } {
            Change::Done => word,
            Change::Word(new) => {
                slot.word.store(new, Release);
                self.retire(guard, word);
                new
            }
        }
    }

    fn retire(&self, guard: &Guard, word: u64) {
        if !holders::is_pointer(word) {
            return;
        }
        // SAFETY: no table has it any more; it is freed when nobody of this time is pinned.
        unsafe { guard.defer_unchecked(move || holders::free(word)) };
        if self.retired.fetch_add(1, Relaxed) % BAG == BAG - 1 {
            guard.flush();
        }
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

    fn each(&self, guard: &Guard, items: &[u8], size: usize, mut act: impl FnMut(&[u8])) {
        for (n, item) in items.chunks_exact(size).enumerate() {
            if let Some(ahead) = items.get((n + AHEAD) * size..(n + AHEAD + 1) * size) {
                self.prefetch(guard, hash(ahead));
            }
            act(item);
        }
    }

    fn prefetch(&self, guard: &Guard, key: u64) {
        self.shard(key).table(guard).prefetch(key);
    }

    fn shard(&self, key: u64) -> &Shard {
        &self.shards[(key >> 56) as usize]
    }
}

impl Shard {
    fn table<'g>(&self, guard: &'g Guard) -> &'g Table {
        // SAFETY: never null; a replaced table lives until every guard of its time is gone.
        unsafe { self.table.load(Acquire, guard).deref() }
    }

    /// Another table with room for `live` keys, without the dead ones.
    fn rebuild(&self, guard: &Guard, writer: &mut Writer, live: usize) {
        let new = Table::for_live(live);
        writer.used = 0;
        for (key, word, slot) in self.table(guard).live() {
            if let Probe::Empty(empty) = new.probe(key) {
                empty.publish(key, word, slot.tokens.load(Relaxed));
                writer.used += 1;
            }
        }
        let old = self.table.swap(Owned::new(new), Release, guard);
        // SAFETY: it is unlinked; who still reads it was pinned before.
        unsafe { guard.defer_destroy(old) };
        guard.flush();
    }

    fn shrink(&self, guard: &Guard, writer: &mut Writer, live: usize) {
        if live < self.table(guard).live_min {
            self.rebuild(guard, writer, live);
        }
    }

    /// By tokens, then by hash.
    fn deepest<'g>(
        &self,
        guard: &'g Guard,
        count: usize,
    ) -> impl Iterator<Item = (Slot<'g>, u64)> + use<'g> {
        let mut all: Vec<_> = self
            .table(guard)
            .live()
            .map(|(key, word, slot)| ((slot.tokens.load(Relaxed), key), slot, word))
            .collect();
        all.select_nth_unstable_by(count - 1, |one, other| other.0.cmp(&one.0));
        all.truncate(count);
        all.into_iter().map(|(_, slot, word)| (slot, word))
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        for shard in &self.shards {
            // SAFETY: nobody else has the index any more.
            unsafe {
                let guard = epoch::unprotected();
                for (_, word, _) in shard.table(guard).live() {
                    holders::free(word);
                }
                drop(shard.table.load(Relaxed, guard).into_owned());
            }
        }
    }
}

fn lowered(before: Level, planes: Planes) -> Level {
    match planes {
        0 => before,
        HBM => before.min(1),
        _ => 0,
    }
}

/// Free what nobody can read any more now, not some messages later.
fn collect(garbage: usize) {
    for _ in 0..garbage / (BAG * BAGS_A_COLLECTION) + 4 {
        epoch::pin().flush();
    }
}

/// glibc keeps freed memory as long as something above it is in use, which here is always.
fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the allocator's own locks and moves nothing.
    unsafe {
        libc::malloc_trim(0);
    }
}

fn hash(item: &[u8]) -> u64 {
    let mut bytes = [0; HASH];
    bytes.copy_from_slice(&item[..HASH]);
    u64::from_le_bytes(bytes)
}

fn tokens(item: &[u8]) -> u32 {
    let mut bytes = [0; ANNOUNCED - HASH];
    bytes.copy_from_slice(&item[HASH..ANNOUNCED]);
    u32::from_le_bytes(bytes)
}
