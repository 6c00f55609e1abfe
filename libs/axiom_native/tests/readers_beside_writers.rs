//! Readers and writers at once, each law checked in every answer. Run it under a thread sanitizer
//! too: `make test-native-sanitized`.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
use std::thread;

use axiom_native::found::{Found, Row};
use axiom_native::index::{Index, SHARDS, Tier};

/// Two writers, each with engines of its own; beyond `CODES` holder sets are bits.
const ENGINES: u32 = 80;
const CODES: u32 = 3;
const CHUNKS: usize = 48;
const STEPS: usize = 6_000;

/// How deep an engine was, ever: told before it gets deeper, and after it got less deep.
struct History {
    depths: Box<[AtomicUsize]>,
    len: AtomicUsize,
}

impl History {
    fn new() -> History {
        let depths = (0..=STEPS).map(|_| AtomicUsize::new(0)).collect();
        History { depths, len: AtomicUsize::new(1) }
    }

    fn last(&self) -> usize {
        self.depths[self.len.load(SeqCst) - 1].load(SeqCst)
    }

    fn push(&self, depth: usize) {
        let len = self.len.load(SeqCst);
        self.depths[len].store(depth, SeqCst);
        self.len.store(len + 1, SeqCst);
    }

    fn deepest_since(&self, since: usize) -> usize {
        (since..self.len.load(SeqCst)).map(|at| self.depths[at].load(SeqCst)).max().unwrap_or(0)
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % bound
    }
}

/// All in two shards, so that their tables are rebuilt all the time.
fn hash(chunk: usize) -> u64 {
    let spread = (chunk as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (chunk as u64 % 2) << 56 | spread >> 8
}

/// An engine's own count for a chunk; what is told of the chunk is the least of its holders'.
fn tokens(engine: u32, depth: usize) -> u32 {
    depth as u32 * (16 + engine % 5)
}

fn announce(index: &Index, engine: u32, depth: usize, tier: Tier) {
    let told: Vec<u8> = (0..depth)
        .flat_map(|at| {
            [&hash(at).to_le_bytes()[..], &tokens(engine, at + 1).to_le_bytes()].concat()
        })
        .collect();
    index.apply(engine, &told, &[], tier);
}

fn withdraw(index: &Index, engine: u32, from: usize) {
    let gone: Vec<u8> = (from..CHUNKS).rev().flat_map(|at| hash(at).to_le_bytes()).collect();
    index.apply(engine, &[], &gone, Tier::Any);
}

fn write(index: &Index, histories: &[History], engines: std::ops::Range<u32>, seed: u64) {
    let mut random = Random(seed);
    for step in 0..STEPS {
        let engine = engines.start + random.below(engines.len()) as u32;
        let history = &histories[engine as usize];
        let depth = random.below(CHUNKS + 1);
        if step % 500 == 499 {
            index.clear(engine);
            history.push(0);
        } else if depth > history.last() {
            history.push(depth);
            announce(index, engine, depth, if depth % 3 == 0 { Tier::Any } else { Tier::Hbm });
        } else {
            withdraw(index, engine, depth);
            history.push(depth);
        }
        // Chunks of nobody's chain come and go, so that tables grow and shrink.
        let other = (hash(1_000 + random.below(4_000))).to_le_bytes();
        if step % 2 == 0 {
            index.apply(engine, &[&other[..], &[1, 0, 0, 0]].concat(), &[], Tier::Hbm);
        } else {
            index.apply(engine, &[], &other, Tier::Any);
        }
    }
}

fn read(index: &Index, histories: &[History], done: &AtomicBool, looks: &AtomicU32) {
    let chain: Vec<u8> = (0..CHUNKS).flat_map(|at| hash(at).to_le_bytes()).collect();
    while !done.load(SeqCst) {
        let since: Vec<usize> = histories.iter().map(|h| h.len.load(SeqCst) - 1).collect();
        let mut found = Found::default();
        index.lookup(&chain, &mut found);
        let (any_tier, hbm) = found.rows();
        for rows in [any_tier, hbm.unwrap_or(&[])] {
            check(rows, histories, &since);
        }
        looks.fetch_add(1, SeqCst);
    }
}

fn check(rows: &[Row], histories: &[History], since: &[usize]) {
    let mut before = CHUNKS as u32;
    for &[engine, depth, told] in rows {
        assert!(depth <= before, "rows are sorted by depth");
        before = depth;
        let deepest = histories[engine as usize].deepest_since(since[engine as usize]);
        assert!(depth as usize <= deepest, "engine {engine}: {depth} of {deepest}");
        assert!(told <= tokens(engine, depth as usize), "engine {engine}: {told} tokens");
        assert!(told >= 16 * depth, "engine {engine}: {told} tokens at {depth}");
    }
}

fn stress(engines: u32) {
    let index = Index::new(SHARDS * 10_000);
    let histories: Vec<History> = (0..engines).map(|_| History::new()).collect();
    // The epochs are set up here, before the threads: a sanitizer does not see into std's `Once`.
    index.clear(0);
    let (done, looks) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let readers: Vec<_> =
            (0..2).map(|_| scope.spawn(|| read(&index, &histories, &done, &looks))).collect();
        let half = engines / 2;
        let (one, other) = (0..half, half..engines);
        let writers = [
            scope.spawn(|| write(&index, &histories, one, 0x5EED)),
            scope.spawn(|| write(&index, &histories, other, 0xFEED)),
        ];
        let wrote: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, SeqCst);
        assert!(readers.into_iter().all(|reader| reader.join().is_ok()), "a reader's law broke");
        assert!(wrote.iter().all(Result::is_ok));
    });
    assert!(looks.load(SeqCst) > 0);
    for engine in 0..engines {
        index.clear(engine);
    }
    assert_eq!(index.entries(), 0);
}

#[test]
fn few_engines() {
    stress(CODES);
}

#[test]
fn many_engines() {
    stress(ENGINES);
}
