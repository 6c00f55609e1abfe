//! A look-up: the deepest chunk first, then the spans between known chunks by halves. Where nobody
//! new holds the upper end of a span, nobody new holds anything within.

use crossbeam_epoch::{self as epoch, Guard};

use crate::found::Found;
use crate::index::HASH;
use crate::shards::Shards;
use crate::table::{Probe, Slot};

/// Spans of so few chunks are walked: all of their cache lines are asked for at once, where halves
/// would wait for one after the other.
const WALKED: usize = 8;

type Entry<'g> = (u64, Slot<'g>);

struct Search<'g> {
    shards: &'g Shards,
    guard: &'g Guard,
    chain: &'g [u8],
}

/// Add to `found` who holds how much of `chain`, whole u64 hashes, little-endian.
pub fn search(shards: &Shards, chain: &[u8], found: &mut Found) {
    let length = chain.len() / HASH;
    if length == 0 {
        return;
    }
    let search = Search { shards, guard: &epoch::pin(), chain };
    search.prefetch(length - 1);
    let first = search.entry(0);
    if first.is_none() {
        return;
    }
    search.add(found, search.entry(length - 1), length - 1);
    search.span(found, (0, first), length - 1);
}

impl<'g> Search<'g> {
    /// Between position `i` with its entry, and `j`, at and beyond which all is found.
    fn span(&self, found: &mut Found, (i, entry): (usize, Option<Entry<'g>>), j: usize) {
        let Some((word, _)) = entry else { return };
        // SAFETY: read under `guard`.
        if !unsafe { found.lacks(word) } {
            return;
        }
        if j - i <= WALKED {
            (i + 1..j).rev().for_each(|at| self.prefetch(at));
            (i + 1..j).rev().for_each(|at| self.add(found, self.entry(at), at));
            self.add(found, entry, i);
            return;
        }
        let middle = usize::midpoint(i, j);
        // One of them is next, in a moment: whichever it is, its line is on its way by then.
        self.prefetch(usize::midpoint(i, middle));
        self.prefetch(usize::midpoint(middle, j));
        self.span(found, (middle, self.entry(middle)), j);
        self.span(found, (i, entry), middle);
    }

    fn add(&self, found: &mut Found, entry: Option<Entry<'g>>, at: usize) {
        if let Some((word, slot)) = entry {
            // SAFETY: read under `guard`.
            unsafe { found.add(word, slot.tokens, at as u32 + 1) };
        }
    }

    fn entry(&self, at: usize) -> Option<Entry<'g>> {
        let key = self.key(at);
        match self.shards.table(self.guard, key).probe(key) {
            Probe::Live(slot, word) => Some((word, slot)),
            Probe::Empty(_) => None,
        }
    }

    fn prefetch(&self, at: usize) {
        let key = self.key(at);
        self.shards.table(self.guard, key).prefetch(key);
    }

    fn key(&self, at: usize) -> u64 {
        crate::index::hash(&self.chain[at * HASH..])
    }
}
