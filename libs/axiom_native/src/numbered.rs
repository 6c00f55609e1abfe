//! Maps by numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// By keys that are numbers of our own making, or hashes: mixed with little effort.
pub type Numbered<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

#[derive(Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(23) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}
