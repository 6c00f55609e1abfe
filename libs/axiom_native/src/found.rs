//! What a look-up has found: each engine once, at the deepest chunk that it holds; both planes.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use smallvec::SmallVec;

use crate::holders::{View, engine_of, in_hbm, view};

/// Engine, entries, tokens; little-endian.
pub type Row = [u32; 3];

/// `seen` is laid out as `holders::View::Bits`: `[held, in HBM]` of 64 engines, of the next.
#[derive(Default)]
pub struct Found {
    seen: SmallVec<[u64; 32]>,
    /// The last word within which all holders are that was added; 0: none.
    last: u64,
    rows: Rows,
}

#[derive(Default)]
struct Rows {
    any_tier: Vec<Row>,
    /// None while it says the same as `any_tier`.
    hbm: Option<Vec<Row>>,
}

impl Found {
    /// Whether `word` has a holder that was not found deeper.
    ///
    /// # Safety
    /// As for `holders::view`.
    pub unsafe fn lacks(&self, word: u64) -> bool {
        if word == self.last {
            return false;
        }
        // SAFETY: the caller's.
        match unsafe { view(word) } {
            View::Codes(mut codes) => codes.any(|code| {
                let (at, bit) = place(engine_of(code));
                match self.seen.get(at..at + 2) {
                    Some(seen) => seen[0] & bit == 0 || in_hbm(code) && seen[1] & bit == 0,
                    None => true,
                }
            }),
            View::Bits(bits) => {
                let known = bits.len().min(self.seen.len());
                bits.iter().zip(&self.seen).any(|(word, seen)| word.load(Relaxed) & !seen != 0)
                    || bits[known..].iter().any(|word| word.load(Relaxed) != 0)
            }
        }
    }

    /// Its holders hold `depth` entries, unless they were found deeper. `tokens` is read after who
    /// holds it: it falls before a holder that has fewer of them is told of.
    ///
    /// # Safety
    /// As for `holders::view`.
    pub unsafe fn add(&mut self, word: u64, tokens: &AtomicU32, depth: u32) {
        // SAFETY: the caller's.
        match unsafe { view(word) } {
            View::Codes(codes) => {
                self.last = word;
                for code in codes {
                    let (at, bit) = place(engine_of(code));
                    if self.seen.len() < at + 2 {
                        self.seen.resize(at + 2, 0);
                    }
                    let in_hbm = if in_hbm(code) { bit } else { 0 };
                    let seen = &mut self.seen[at..at + 2];
                    self.rows.add(at / 2, [bit, in_hbm], seen, tokens, depth);
                }
            }
            View::Bits(bits) => {
                if self.seen.len() < bits.len() {
                    self.seen.resize(bits.len(), 0);
                }
                let pairs = bits.chunks_exact(2).zip(self.seen.chunks_exact_mut(2));
                for (block, (pair, seen)) in pairs.enumerate() {
                    let (held, in_hbm) = (pair[0].load(Acquire), pair[1].load(Acquire));
                    // Along a chain most blocks say what they said deeper.
                    if held & !seen[0] | in_hbm & !(seen[0] & seen[1]) != 0 {
                        // What is held in HBM is held, also while a writer is between the two.
                        self.rows.add(block, [held | in_hbm, in_hbm], seen, tokens, depth);
                    }
                }
            }
        }
    }

    /// Rows of any tier; those of HBM where they differ.
    pub fn rows(&self) -> (&[Row], Option<&[Row]>) {
        (&self.rows.any_tier, self.rows.hbm.as_deref())
    }
}

impl Rows {
    /// 64 engines: who of them holds it, and in HBM; who of them was seen.
    #[inline]
    fn add(
        &mut self,
        block: usize,
        held: [u64; 2],
        seen: &mut [u64],
        tokens: &AtomicU32,
        depth: u32,
    ) {
        let (new, new_in_hbm) = (held[0] & !seen[0], held[1] & !seen[1]);
        if new | new_in_hbm == 0 {
            return;
        }
        seen[0] |= held[0];
        seen[1] |= held[1];
        if new != new_in_hbm && self.hbm.is_none() {
            self.hbm = Some(self.any_tier.clone());
        }
        let (first, tokens) = (block as u32 * 64, tokens.load(Relaxed));
        push(&mut self.any_tier, first, new, depth, tokens);
        if let Some(rows) = &mut self.hbm {
            push(rows, first, new_in_hbm, depth, tokens);
        }
    }
}

fn push(rows: &mut Vec<Row>, first: u32, engines: u64, depth: u32, tokens: u32) {
    if engines == u64::MAX {
        rows.extend((first..first + 64).map(|engine| row(engine, depth, tokens)));
        return;
    }
    let mut rest = engines;
    while rest != 0 {
        rows.push(row(first + rest.trailing_zeros(), depth, tokens));
        rest &= rest - 1;
    }
}

fn place(engine: u32) -> (usize, u64) {
    (2 * (engine as usize / 64), 1 << (engine % 64))
}

fn row(engine: u32, depth: u32, tokens: u32) -> Row {
    [engine.to_le(), depth.to_le(), tokens.to_le()]
}
