//! Who holds a chunk, in one word: up to four engines within it, more of them behind a pointer.
//!
//! An engine's code is 15 bits: twice its number, plus 1 when it holds the chunk in HBM, plus 1, so
//! that 0 is nobody. Within a word codes are sorted, so that equal sets are equal words. Behind a
//! pointer they are either sorted codes, four in a word, which is replaced whole, or two bits an
//! engine (held, in HBM; words of both in turn), which change in place.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use smallvec::SmallVec;

pub const ENGINES_MAX: u32 = 16_383;
/// 0: does not hold it, 1: holds it in some tier, 2: holds it in HBM.
pub type Level = u8;
type Sorted = SmallVec<[u16; 32]>;

const CODE_BITS: u32 = 15;
const PACKED_BITS: u32 = 16;
const INLINE_MAX: usize = 4;
const POINTER: u64 = 1 << 63;
const BITS: u64 = 1 << 62;
const ADDRESS: u64 = !(POINTER | BITS);
/// Bits in place of codes where they take at most so many bytes a holder...
const BYTES_A_HOLDER: usize = 10;
/// ...and codes again in place of bits that take more than this.
const BYTES_A_HOLDER_WASTED: usize = 2 * BYTES_A_HOLDER;

pub enum View<'a> {
    Codes(Codes<'a>),
    /// `[held, in HBM]` of engines 0 to 63, of 64 to 127, and so on.
    Bits(&'a [AtomicU64]),
}

/// Ascending.
#[derive(Clone)]
pub struct Codes<'a> {
    word: u64,
    bits: u32,
    more: &'a [AtomicU64],
}

impl Iterator for Codes<'_> {
    type Item = u16;

    fn next(&mut self) -> Option<u16> {
        if self.word == 0 {
            let (next, more) = self.more.split_first()?;
            (self.word, self.more) = (next.load(Relaxed), more);
        }
        let code = self.word & ((1 << self.bits) - 1);
        self.word >>= self.bits;
        Some(code as u16)
    }
}

#[derive(Debug, PartialEq)]
pub enum Change {
    /// Nothing to publish: as it was, or changed in place.
    Done,
    /// The new word, which replaces the old one; `free` that one once nobody can read it.
    Word(u64),
}

pub fn code(engine: u32, in_hbm: bool) -> u16 {
    (engine * 2 + u32::from(in_hbm) + 1) as u16
}

pub fn engine_of(code: u16) -> u32 {
    u32::from(code - 1) / 2
}

pub fn in_hbm(code: u16) -> bool {
    (code - 1) & 1 == 1
}

/// # Safety
/// `word` was read from a table while the caller was pinned, and still is.
pub unsafe fn view<'a>(word: u64) -> View<'a> {
    if word & POINTER == 0 {
        return View::Codes(Codes { word, bits: CODE_BITS, more: &[] });
    }
    // SAFETY: as above: what it points to is not freed before the caller is unpinned.
    let words = unsafe { &*pointed(word) };
    if word & BITS != 0 {
        return View::Bits(&words[1..]);
    }
    View::Codes(Codes { word: 0, bits: PACKED_BITS, more: &words[1..] })
}

/// Set what `engine` holds to `next(what it held)`.
///
/// # Safety
/// As for `view`; and nobody else changes this word meanwhile.
pub unsafe fn change(word: u64, engine: u32, next: impl Fn(Level) -> Level) -> Change {
    // Most chunks have one holder, who comes and goes.
    if word < 1 << CODE_BITS && engine_of(word as u16) == engine {
        let before = 1 + Level::from(in_hbm(word as u16));
        return match next(before) {
            0 => Change::Word(0),
            after if after == before => Change::Done,
            after => Change::Word(u64::from(code(engine, after == 2))),
        };
    }
    // SAFETY: the caller's.
    match unsafe { view(word) } {
        View::Codes(codes) => {
            let mut codes: Sorted = codes.collect();
            let at = codes.partition_point(|&code| engine_of(code) < engine);
            let there = codes.get(at).copied().filter(|&code| engine_of(code) == engine);
            let before = there.map_or(0, |code| 1 + Level::from(in_hbm(code)));
            let after = next(before);
            match (before, after) {
                _ if before == after => return Change::Done,
                (0, _) => codes.insert(at, code(engine, after == 2)),
                (_, 0) => drop(codes.remove(at)),
                _ => codes[at] = code(engine, after == 2),
            }
            Change::Word(word_of(&codes))
        }
        View::Bits(bits) => change_bits(bits, engine, next),
    }
}

fn change_bits(bits: &[AtomicU64], engine: u32, next: impl Fn(Level) -> Level) -> Change {
    let (at, bit) = (2 * (engine as usize / 64), 1u64 << (engine % 64));
    let held = bits.get(at).map_or(0, |word| word.load(Relaxed));
    let in_hbm = bits.get(at + 1).map_or(0, |word| word.load(Relaxed));
    let before = Level::from(held & bit != 0) + Level::from(in_hbm & bit != 0);
    let after = next(before);
    if before == after {
        return Change::Done;
    }
    if at >= bits.len() {
        let mut codes = codes_of(bits);
        codes.push(code(engine, after == 2));
        return Change::Word(word_of(&codes));
    }
    let set = |word: u64, on: bool| if on { word | bit } else { word & !bit };
    bits[at].store(set(held, after >= 1), Release);
    bits[at + 1].store(set(in_hbm, after == 2), Release);
    if after == 0 {
        let holders: u32 = bits.iter().step_by(2).map(|word| word.load(Relaxed).count_ones()).sum();
        if bits.len() * 8 > holders as usize * BYTES_A_HOLDER_WASTED {
            return Change::Word(word_of(&codes_of(bits)));
        }
    }
    Change::Done
}

/// Free what `word` points to, if anything.
///
/// # Safety
/// No table has the word any more, and nobody who read it is still pinned.
pub unsafe fn free(word: u64) {
    if word & POINTER == 0 {
        return;
    }
    // SAFETY: `boxed` made it from a box of as many words, and the caller is its last user.
    unsafe { drop(Box::from_raw(pointed(word))) }
}

pub fn is_pointer(word: u64) -> bool {
    word & POINTER != 0
}

fn codes_of(bits: &[AtomicU64]) -> Sorted {
    let mut codes = Sorted::new();
    for (block, pair) in bits.chunks_exact(2).enumerate() {
        let (mut held, in_hbm) = (pair[0].load(Relaxed), pair[1].load(Relaxed));
        while held != 0 {
            let bit = held.trailing_zeros();
            codes.push(code(block as u32 * 64 + bit, in_hbm >> bit & 1 == 1));
            held &= held - 1;
        }
    }
    codes
}

fn word_of(codes: &[u16]) -> u64 {
    if codes.len() <= INLINE_MAX {
        return codes.iter().rev().fold(0, |word, &code| word << CODE_BITS | u64::from(code));
    }
    let blocks = engine_of(codes[codes.len() - 1]) as usize / 64 + 1;
    if blocks * 16 <= codes.len() * BYTES_A_HOLDER {
        let mut bits = vec![0u64; 1 + 2 * blocks];
        bits[0] = 2 * blocks as u64;
        for &code in codes {
            let engine = engine_of(code);
            let at = 1 + 2 * (engine as usize / 64);
            bits[at] |= 1 << (engine % 64);
            bits[at + 1] |= u64::from(in_hbm(code)) << (engine % 64);
        }
        return boxed(&bits) | BITS;
    }
    let mut packed = vec![0u64; 1 + codes.len().div_ceil(4)];
    packed[0] = codes.len() as u64;
    for (n, &code) in codes.iter().enumerate() {
        packed[1 + n / 4] |= u64::from(code) << (PACKED_BITS as usize * (n % 4));
    }
    boxed(&packed)
}

fn boxed(words: &[u64]) -> u64 {
    let words: Box<[AtomicU64]> = words.iter().map(|&word| AtomicU64::new(word)).collect();
    let address = Box::into_raw(words).cast::<AtomicU64>() as u64;
    debug_assert_eq!(address & !ADDRESS, 0);
    address | POINTER
}

/// # Safety
/// `word` points to something that was not freed.
unsafe fn pointed(word: u64) -> *mut [AtomicU64] {
    let first = (word & ADDRESS) as *mut AtomicU64;
    // SAFETY: `boxed` made it, and its first word says how many follow: words of bits, or codes.
    let count = unsafe { (*first).load(Relaxed) } as usize;
    let words = if word & BITS != 0 { count } else { count.div_ceil(4) };
    std::ptr::slice_from_raw_parts_mut(first, 1 + words)
}
