//! Dynamo's own index (`ConcurrentRadixTreeCompressed`) on the work of `axiom bench index`: as many
//! blocks, chains of 512, messages of 32, eight workers. Look-ups are called in this thread, events
//! go to its one worker thread. Argument: blocks. Prints one JSON object.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dynamo_kv_router::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::{KvIndexerInterface, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
};

const CHAIN: usize = 512;
const MESSAGE: usize = 32;
const WORKERS: u64 = 8;
const GROUP: usize = 100;
const PASSES: usize = 5;

fn main() {
    let blocks: usize =
        std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let mut random = Random(5);
    let chains: Vec<Vec<LocalBlockHash>> = (0..blocks / CHAIN)
        .map(|_| (0..CHAIN).map(|_| LocalBlockHash(random.next())).collect())
        .collect();
    let events: Vec<RouterEvent> =
        chains.iter().enumerate().flat_map(|(n, c)| stored(n, c)).collect();
    let index = ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let began = cpu();
    runtime.block_on(async {
        for event in events {
            index.apply_event(event).await;
        }
        index.flush_and_wait().await.expect("all events applied");
    });
    let store_ns = (cpu() - began).as_nanos() as f64 / (chains.len() * CHAIN) as f64;
    let found = index.backend().find_matches(&chains[0], false);
    assert_eq!(found.scores.values().max(), Some(&(CHAIN as u32)), "the work is not done");
    let mut groups: Vec<f64> = Vec::new();
    for _ in 0..PASSES * chains.len() / GROUP {
        let asked: Vec<_> =
            (0..GROUP).map(|_| &chains[random.next() as usize % chains.len()]).collect();
        let began = Instant::now();
        for chain in asked {
            black_box(index.backend().find_matches(chain, false));
        }
        groups.push(began.elapsed().as_nanos() as f64 / GROUP as f64 / 1e3);
    }
    groups.sort_by(f64::total_cmp);
    println!("{{\"lookup_us\": {}, \"store_ns\": {store_ns}}}", groups[groups.len() / 2]);
}

fn stored(number: usize, chain: &[LocalBlockHash]) -> Vec<RouterEvent> {
    let mut parent = None;
    let mut events = Vec::new();
    for (part, hashes) in chain.chunks(MESSAGE).enumerate() {
        let blocks: Vec<_> = hashes
            .iter()
            .map(|&tokens_hash| KvCacheStoredBlockData {
                block_hash: ExternalSequenceBlockHash(tokens_hash.0),
                tokens_hash,
                mm_extra_info: None,
            })
            .collect();
        let last = blocks[blocks.len() - 1].block_hash;
        let data = KvCacheStoreData { parent_hash: parent, start_position: None, blocks };
        let event_id = (number * CHAIN + part) as u64;
        let event = KvCacheEvent { event_id, data: KvCacheEventData::Stored(data), dp_rank: 0 };
        events.push(RouterEvent::new(number as u64 % WORKERS, event));
        parent = Some(last);
    }
    events
}

/// CPU of all threads of this process: nanoseconds run, as the kernel counts them.
fn cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let run = |task: std::io::Result<std::fs::DirEntry>| -> Option<u64> {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(tasks.filter_map(run).sum())
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
