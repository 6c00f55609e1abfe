//! One shard's hash table: open addressing in cache lines of three slots.
//!
//! A slot's life is one way: empty, live, dead. Its key is written once, its tokens only ever fall,
//! and a dead slot is never used again in this table; a rebuild makes another table without it. So
//! a reader that found a key needs no second look: whatever word it reads there was this key's.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::memory::Memory;

/// Slots of one bucket, which is one cache line.
const WAYS: usize = 3;
const BUCKETS_MIN: usize = 4;
/// A table is rebuilt when this share of its slots is used, and a new one has less than that live.
const USED_MAX: f64 = 0.84;
const LIVE_WHEN_NEW: f64 = 0.56;

/// All zero when empty.
#[repr(C, align(64))]
struct Bucket {
    keys: [AtomicU64; WAYS],
    words: [AtomicU64; WAYS],
    tokens: [AtomicU32; WAYS],
}

pub struct Table {
    buckets: *const Bucket,
    len: usize,
    /// Used slots, dead ones included, at which a rebuild is due.
    pub used_max: usize,
    /// Fewer live keys are better off in a smaller table.
    pub live_min: usize,
    /// Never read: it owns what `buckets` points to.
    _memory: Memory,
}

// SAFETY: `buckets` points into `_memory`, which moves with it; all in it is atomic.
unsafe impl Send for Table {}
unsafe impl Sync for Table {}

/// A slot that somebody uses or may use.
#[derive(Clone, Copy)]
pub struct Slot<'a> {
    pub key: &'a AtomicU64,
    /// Who holds it (`holders`); 0: nobody.
    pub word: &'a AtomicU64,
    pub tokens: &'a AtomicU32,
}

impl Slot<'_> {
    /// Make an empty slot live. Readers that see the key see the rest.
    pub fn publish(&self, key: u64, word: u64, tokens: u32) {
        self.tokens.store(tokens, Relaxed);
        self.word.store(word, Relaxed);
        self.key.store(key, Release);
    }
}

pub enum Probe<'a> {
    Live(Slot<'a>, u64),
    Empty(Slot<'a>),
}

impl Table {
    /// An empty table that takes `live` keys and some more before it is rebuilt.
    pub fn for_live(live: usize) -> Table {
        let slots = (live as f64 / LIVE_WHEN_NEW).ceil() as usize;
        let len = slots.div_ceil(WAYS).max(BUCKETS_MIN);
        let memory = Memory::zeroed(len * size_of::<Bucket>());
        let buckets = memory.start().cast_const().cast();
        let slots = (len * WAYS) as f64;
        let live_min = if len > BUCKETS_MIN { (slots * LIVE_WHEN_NEW / 4.0) as usize } else { 0 };
        Table { buckets, len, used_max: (slots * USED_MAX) as usize, live_min, _memory: memory }
    }

    /// Ask for the cache line where `key` is looked for first.
    pub fn prefetch(&self, key: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, for an address within the table.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(self.buckets.add(self.first(key)).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = key;
    }

    /// The live slot of `key` with its word, or the empty slot that it would get.
    pub fn probe(&self, key: u64) -> Probe<'_> {
        let mut at = self.first(key);
        loop {
            let bucket = self.bucket(at);
            for way in 0..WAYS {
                let found = bucket.keys[way].load(Acquire);
                if found == 0 {
                    return Probe::Empty(slot(bucket, way));
                }
                if found == key {
                    let word = bucket.words[way].load(Acquire);
                    if word != 0 {
                        return Probe::Live(slot(bucket, way), word);
                    }
                }
            }
            // Ends: some of the slots are always empty.
            at = if at + 1 == self.len { 0 } else { at + 1 };
        }
    }

    /// All live slots: key, word, slot.
    pub fn live(&self) -> impl Iterator<Item = (u64, u64, Slot<'_>)> {
        (0..self.len).flat_map(move |at| {
            let bucket = self.bucket(at);
            (0..WAYS).filter_map(move |way| {
                let word = bucket.words[way].load(Acquire);
                (word != 0).then(|| (bucket.keys[way].load(Relaxed), word, slot(bucket, way)))
            })
        })
    }

    /// Multiply and shift: any number of buckets will do. The top byte chose the shard.
    fn first(&self, key: u64) -> usize {
        ((u128::from(key << 8) * self.len as u128) >> 64) as usize
    }

    fn bucket(&self, at: usize) -> &Bucket {
        debug_assert!(at < self.len);
        // SAFETY: `at` is below `len`, of which `first` and `probe` take care.
        unsafe { &*self.buckets.add(at) }
    }
}

fn slot(bucket: &Bucket, way: usize) -> Slot<'_> {
    Slot { key: &bucket.keys[way], word: &bucket.words[way], tokens: &bucket.tokens[way] }
}
