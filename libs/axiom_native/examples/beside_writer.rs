//! Look-ups in one thread beside a writer in another, each on a core of its own: one JSON object.
//! Arguments: chunks stored, messages a second, seconds of each part.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use axiom_native::found::Found;
use axiom_native::index::{Index, SHARDS, Tier};

const CHAIN: usize = 512;
const MESSAGE: usize = 32;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<usize>().unwrap_or(0));
    let chunks = arguments.next().unwrap_or(1_000_000);
    let rate = arguments.next().unwrap_or(100_000);
    let seconds = Duration::from_secs(arguments.next().unwrap_or(2) as u64);
    let mut random = Random(0x5EED);
    let chains: Vec<Vec<u64>> =
        (0..chunks / CHAIN).map(|_| (0..CHAIN).map(|_| random.next()).collect()).collect();
    let index = Index::new(SHARDS.max(4 * chunks));
    for (n, chain) in chains.iter().enumerate() {
        for (part, hashes) in chain.chunks(MESSAGE).enumerate() {
            let told: Vec<u8> = (1..)
                .zip(hashes)
                .flat_map(|(at, hash)| announced(*hash, (part * MESSAGE + at) as u32 * 16))
                .collect();
            index.apply(n as u32 % 8, &told, &[], Tier::Hbm);
        }
    }
    let asked: Vec<Vec<u8>> = chains
        .iter()
        .map(|chain| chain.iter().flat_map(|hash| hash.to_le_bytes()).collect())
        .collect();
    pin_to(0);
    let quiet = read(&index, &asked, seconds);
    let done = AtomicBool::new(false);
    let (beside, written) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            pin_to(1);
            write(&index, &chains, rate, &done)
        });
        let beside = read(&index, &asked, seconds);
        done.store(true, Relaxed);
        (beside, writer.join().unwrap_or(0.0))
    });
    println!("{{\"quiet\": {quiet}, \"writing\": {beside}, \"messages_per_s\": {written:.0}}}");
}

/// One chunk a message: the deep end of one chain after the other goes, and comes back.
fn write(index: &Index, chains: &[Vec<u64>], rate: usize, done: &AtomicBool) -> f64 {
    let (start, mut sent) = (Instant::now(), 0);
    while !done.load(Relaxed) {
        let due = start.elapsed().as_secs_f64() * rate as f64;
        if sent as f64 >= due {
            std::hint::spin_loop();
            continue;
        }
        let chain = sent / 2 % chains.len();
        let (engine, hash) = (chain as u32 % 8, chains[chain][CHAIN - 1]);
        if sent % 2 == 0 {
            index.apply(engine, &[], &hash.to_le_bytes(), Tier::Any);
        } else {
            index.apply(engine, &announced(hash, CHAIN as u32 * 16), &[], Tier::Hbm);
        }
        sent += 1;
    }
    sent as f64 / start.elapsed().as_secs_f64()
}

fn read(index: &Index, asked: &[Vec<u8>], seconds: Duration) -> String {
    let (start, mut random) = (Instant::now(), Random(7));
    let mut took: Vec<u64> = Vec::with_capacity(10_000_000);
    while start.elapsed() < seconds && took.len() < took.capacity() {
        for _ in 0..64 {
            let chain = &asked[random.next() as usize % asked.len()];
            let began = Instant::now();
            let mut found = Found::default();
            index.lookup(chain, &mut found);
            std::hint::black_box(found.rows());
            took.push(began.elapsed().as_nanos() as u64);
        }
    }
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    format!("{{\"p50\": {}, \"p99\": {}, \"p999\": {}}}", at(0.5), at(0.99), at(0.999))
}

fn announced(hash: u64, tokens: u32) -> Vec<u8> {
    [&hash.to_le_bytes()[..], &tokens.to_le_bytes()].concat()
}

/// The `n`th core that this process may use, if there is one.
#[cfg(target_os = "linux")]
fn pin_to(n: usize) {
    // SAFETY: plain values, sized as the calls want them.
    unsafe {
        let mut allowed: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed);
        let cores = (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &allowed));
        if let Some(core) = cores.clone().nth(n).or_else(|| cores.clone().next_back()) {
            let mut one: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut one);
            libc::sched_setaffinity(0, size_of_val(&one), &one);
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn pin_to(_: usize) {}

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
