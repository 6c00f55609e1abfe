//! The tables of all 256 shards, by the top byte of the hash, and the one who writes them.
//!
//! Readers take no lock and never wait: they are pinned to an epoch, and tables and holder sets that
//! were replaced are freed once nobody who was pinned then still is. Whoever writes has the lock
//! for some hundred chunks at a time: an atomic operation a message costs little, one a chunk does.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crossbeam_epoch::{self as epoch, Atomic, Guard, Owned};
use parking_lot::{Mutex, MutexGuard};

use crate::holders::{self, Change, Level};
use crate::memory;
use crate::snapshot::Planes;
use crate::table::{Probe, Slot, Table};

pub const SHARDS: usize = 256;
pub const HBM: Planes = 0b01;
pub const BOTH: Planes = 0b11;
/// Making room in a full shard frees one in so many entries.
const ROOM_SHARE: usize = 16;
/// Garbage is collected whenever so much more of it is there: one bag of the epochs.
const BAG: usize = 64;
/// Bags that one collection frees.
const BAGS_A_COLLECTION: usize = 8;
/// From so many freed holder sets on, some MB, what the allocator keeps of them goes back too.
const TRIM_FROM: usize = 1 << 16;

pub struct Shards {
    /// What readers read, and nothing that a message writes: their cache lines stay theirs.
    tables: Box<[Atomic<Table>]>,
    shard_max: usize,
    live: AtomicUsize,
    dropped: AtomicUsize,
    counts: Mutex<Counts>,
}

/// Of one shard each.
struct Count {
    /// Slots of the table that are used, dead ones included.
    used: usize,
    live: usize,
}

struct Counts {
    shards: Box<[Count]>,
    /// Holder sets that were replaced, so far.
    retired: usize,
}

/// Whoever has it is the only one who writes, and is pinned.
pub struct Writer<'a> {
    shards: &'a Shards,
    counts: MutexGuard<'a, Counts>,
    guard: Guard,
}

impl Shards {
    pub fn new(shard_max: usize) -> Shards {
        let counts = (0..SHARDS).map(|_| Count { used: 0, live: 0 }).collect();
        Shards {
            tables: (0..SHARDS).map(|_| Atomic::new(Table::for_live(0))).collect(),
            shard_max,
            live: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            counts: Mutex::new(Counts { shards: counts, retired: 0 }),
        }
    }

    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    pub fn dropped(&self) -> usize {
        self.dropped.load(Relaxed)
    }

    /// The table of `key`.
    #[inline]
    pub fn table<'g>(&self, guard: &'g Guard, key: u64) -> &'g Table {
        self.table_of(guard, shard_of(key))
    }

    #[inline]
    fn table_of<'g>(&self, guard: &'g Guard, shard: usize) -> &'g Table {
        // SAFETY: never null; a replaced table lives until every guard of its time is gone.
        unsafe { self.tables[shard].load(Acquire, guard).deref() }
    }

    /// Waits while another one writes.
    pub fn write(&self) -> Writer<'_> {
        Writer { shards: self, counts: self.counts.lock(), guard: epoch::pin() }
    }

    /// Of what `engine` holds leave the planes that `kept` says. One shard after the other, so that
    /// another writer waits for one of them at most.
    pub fn retain(&self, engine: u32, kept: impl Fn(u64) -> Planes) {
        let mut retired = 0;
        for shard in 0..SHARDS {
            let mut writer = self.write();
            let before = writer.counts.retired;
            writer.retain(shard, engine, &kept);
            retired += writer.counts.retired - before;
        }
        collect(retired + SHARDS * BAG);
        memory::give_back();
        if retired >= TRIM_FROM {
            trim();
        }
    }
}

impl Writer<'_> {
    pub fn prefetch(&self, key: u64) {
        self.shards.table(&self.guard, key).prefetch(key);
    }

    /// `engine` holds it in `planes`, at least.
    #[inline]
    pub fn hold(&mut self, engine: u32, key: u64, tokens: u32, planes: Planes) {
        if key == 0 || planes == 0 {
            return;
        }
        let level = if planes & HBM != 0 { 2 } else { 1 };
        let alone = u64::from(holders::code(engine, level == 2));
        let table = self.shards.table(&self.guard, key);
        match table.probe(key) {
            Probe::Live(slot, word) => {
                if tokens < slot.tokens.load(Relaxed) {
                    slot.tokens.store(tokens, Release);
                }
                if word != alone {
                    let next = |before: Level| before.max(level);
                    change(&self.guard, &mut self.counts.retired, slot, word, engine, next);
                }
            }
            Probe::Empty(slot) => {
                let count = &mut self.counts.shards[shard_of(key)];
                if count.used < table.used_max && count.live < self.shards.shard_max {
                    slot.publish(key, alone, tokens);
                    count.used += 1;
                    count.live += 1;
                    self.shards.live.store(self.shards.live.load(Relaxed) + 1, Relaxed);
                } else {
                    self.hold_in_full(key, alone, tokens);
                }
            }
        }
    }

    /// A new key where the table is full, or the shard.
    #[cold]
    fn hold_in_full(&mut self, key: u64, alone: u64, tokens: u32) {
        let shard = shard_of(key);
        let live = self.counts.shards[shard].live;
        if self.counts.shards[shard].used >= self.shards.table(&self.guard, key).used_max {
            self.rebuild(shard, live + 1);
        }
        if let Probe::Empty(slot) = self.shards.table(&self.guard, key).probe(key) {
            slot.publish(key, alone, tokens);
        }
        self.counts.shards[shard].used += 1;
        self.set_live(shard, live + 1);
        if live + 1 > self.shards.shard_max {
            self.make_room(shard);
        }
    }

    #[inline]
    pub fn release(&mut self, engine: u32, key: u64, planes: Planes) {
        if key == 0 {
            return;
        }
        let table = self.shards.table(&self.guard, key);
        let Probe::Live(slot, word) = table.probe(key) else { return };
        let (shard, live_min) = (shard_of(key), table.live_min);
        let next = |before| lowered(before, planes);
        if change(&self.guard, &mut self.counts.retired, slot, word, engine, next) == 0 {
            self.left(shard, self.counts.shards[shard].live - 1, live_min);
        }
    }

    fn retain(&mut self, shard: usize, engine: u32, kept: impl Fn(u64) -> Planes) {
        let table = self.shards.table_of(&self.guard, shard);
        let (mut live, live_min) = (self.counts.shards[shard].live, table.live_min);
        for (key, word, slot) in table.live() {
            let planes = BOTH & !kept(key);
            let next = |before| lowered(before, planes);
            if change(&self.guard, &mut self.counts.retired, slot, word, engine, next) == 0 {
                live -= 1;
            }
        }
        self.left(shard, live, live_min);
    }

    /// Some went: so many are left, of a table that is too large for fewer than `live_min`.
    fn left(&mut self, shard: usize, live: usize, live_min: usize) {
        self.set_live(shard, live);
        if live < live_min {
            self.rebuild(shard, live);
        }
    }

    /// Another table with room for `live` keys, without the dead ones.
    fn rebuild(&mut self, shard: usize, live: usize) {
        let new = Table::for_live(live);
        self.counts.shards[shard].used = 0;
        for (key, word, slot) in self.shards.table_of(&self.guard, shard).live() {
            if let Probe::Empty(empty) = new.probe(key) {
                empty.publish(key, word, slot.tokens.load(Relaxed));
                self.counts.shards[shard].used += 1;
            }
        }
        let old = self.shards.tables[shard].swap(Owned::new(new), Release, &self.guard);
        // SAFETY: it is unlinked; who still reads it was pinned before.
        unsafe { self.guard.defer_destroy(old) };
        self.guard.flush();
    }

    /// The deepest go: by tokens, then by hash.
    fn make_room(&mut self, shard: usize) {
        let live = self.counts.shards[shard].live;
        let too_many = live - (self.shards.shard_max - self.shards.shard_max / ROOM_SHARE);
        let table = self.shards.table_of(&self.guard, shard);
        let mut all: Vec<_> = table
            .live()
            .map(|(key, word, slot)| ((slot.tokens.load(Relaxed), key), slot, word))
            .collect();
        all.select_nth_unstable_by(too_many - 1, |one, other| other.0.cmp(&one.0));
        for &(_, slot, word) in &all[..too_many] {
            slot.word.store(0, Release);
            retire(&self.guard, &mut self.counts.retired, word);
        }
        self.set_live(shard, live - too_many);
        self.shards.dropped.fetch_add(too_many, Relaxed);
    }

    fn set_live(&mut self, shard: usize, live: usize) {
        let others = self.shards.live.load(Relaxed) - self.counts.shards[shard].live;
        self.counts.shards[shard].live = live;
        self.shards.live.store(others + live, Relaxed);
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        for table in &self.tables {
            // SAFETY: nobody else has the index any more.
            unsafe {
                let guard = epoch::unprotected();
                for (_, word, _) in table.load(Relaxed, guard).deref().live() {
                    holders::free(word);
                }
                drop(table.load(Relaxed, guard).into_owned());
            }
        }
    }
}

/// Publish what `engine` holds now; 0 when nobody holds the chunk any more. The caller is the only
/// one who writes.
fn change(
    guard: &Guard,
    retired: &mut usize,
    slot: Slot<'_>,
    word: u64,
    engine: u32,
    next: impl Fn(Level) -> Level,
) -> u64 {
    // SAFETY: the word was read under `guard`; nobody else writes.
    match unsafe { holders::change(word, engine, next) } {
        Change::Done => word,
        Change::Word(new) => {
            slot.word.store(new, Release);
            retire(guard, retired, word);
            new
        }
    }
}

fn retire(guard: &Guard, retired: &mut usize, word: u64) {
    if !holders::is_pointer(word) {
        return;
    }
    // SAFETY: no table has it any more; it is freed when nobody of this time is pinned.
    unsafe { guard.defer_unchecked(move || holders::free(word)) };
    *retired += 1;
    if *retired % BAG == 0 {
        guard.flush();
    }
}

fn shard_of(key: u64) -> usize {
    (key >> 56) as usize
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
