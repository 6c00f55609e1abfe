//! What an engine's open snapshot, and the messages beside it, said so far.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Planes of `index`: bit 0 is HBM, bit 1 any tier.
pub type Planes = u8;

#[derive(Default)]
pub struct Said {
    pub held: Planes,
    /// Planes in which a message after the snapshot's cut had the last word.
    pub settled: Planes,
}

pub struct Snapshot {
    pub seq: u64,
    pub told: HashMap<u64, Said, BuildHasherDefault<AsItIs>>,
}

impl Snapshot {
    pub fn new(seq: u64) -> Snapshot {
        Snapshot { seq, told: HashMap::default() }
    }

    /// A message after the cut: held, or not any more.
    pub fn settle(&mut self, key: u64, planes: Planes, held: bool) {
        let said = self.told.entry(key).or_default();
        said.held = if held { said.held | planes } else { said.held & !planes };
        said.settled |= planes;
    }

    /// The snapshot itself: the planes in which it counts.
    pub fn tell(&mut self, key: u64, planes: Planes) -> Planes {
        let said = self.told.entry(key).or_default();
        let counts = planes & !said.settled;
        said.held |= counts;
        counts
    }
}

/// Keys are hashes already.
#[derive(Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
