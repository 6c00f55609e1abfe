//! One decision: predict, refuse, pick. The twin of `axiom_common.policy.kernel`, bit for bit: f64,
//! terms added in their order, no fused multiply-add, costs rounded to 1 us before they are
//! compared. Long columns are gone through one operation at a time, so that they are vectors.

use crate::adapters::{AdapterId, BASE, LOADING};
use crate::columns::Wanted;
use crate::fleet::Fleet;
use crate::found::Row;

pub const SHOWN_MAX: usize = 3;

pub struct Ask<'a> {
    pub wanted: Wanted,
    /// None: the base model.
    pub adapter: Option<Asked<'a>>,
    pub size_bytes: f64,
    pub prompt_tokens: f64,
    pub affinity_hash: u64,
    pub request_hash: u64,
    pub now_ms: f64,
    pub profile: usize,
    /// Rows where this very request failed.
    pub excluded: &'a [u32],
    pub prefix: Option<Prefix<'a>>,
}

/// An adapter; `known`: somebody holds it, has requests of it in flight, or remembers it.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    pub name: &'a str,
    pub known: Option<AdapterId>,
}

/// Who holds how much of the prompt's text, which is not empty.
pub struct Prefix<'a> {
    pub prompt_bytes: usize,
    pub any_tier: &'a [Row],
    pub hbm: &'a [Row],
}

impl Ask<'_> {
    pub(crate) fn known(&self) -> Option<AdapterId> {
        self.adapter.and_then(|adapter| adapter.known)
    }
}

#[derive(Default)]
pub struct Choice {
    /// Of all rows by their code.
    pub counts: Vec<u32>,
    /// The dearest candidate's cost, at least 1.
    pub worst_us: i64,
    /// The winner and who comes next, of the winner's ring and of those further out.
    pub shown: [u32; SHOWN_MAX],
    pub shown_count: usize,
}

/// Columns of the request itself; kept, so that nothing is allocated for each.
#[derive(Default)]
pub struct Scratch {
    /// Credit for the prompt's prefix, in tokens; empty without.
    pub credited: Vec<f64>,
    pub uncached: Vec<f64>,
    /// Until the adapter can run; empty for the base model.
    pub load_ms: Vec<f64>,
    pub(crate) load_term_ms: Vec<f64>,
    pub cost_us: Vec<f64>,
    /// By `Held`; empty for the base model.
    pub(crate) held: Vec<u8>,
    pub(crate) marks: Vec<u8>,
    /// The first reason against each row, 0 for candidates.
    pub codes: Vec<u8>,
    pub(crate) candidates: Vec<u32>,
    pub(crate) in_hbm: Vec<[f64; 2]>,
    pub(crate) in_any: Vec<[f64; 2]>,
    pub choice: Choice,
}

impl Fleet {
    /// Decide; what was found is in `scratch` until the next time. `wanted` has a mask.
    pub fn choose(&mut self, ask: &Ask<'_>) {
        let mut scratch = std::mem::take(&mut self.scratch);
        self.credit(ask, &mut scratch);
        self.predict(ask, &mut scratch);
        self.filter(ask, &mut scratch);
        self.set_doubtful_aside(ask, &mut scratch);
        self.pick(ask, &mut scratch);
        self.scratch = scratch;
    }

    /// Book the load of the last choice's winner, before anything changed since. Its id.
    pub fn book_choice(&mut self, ask: &Ask<'_>) -> u64 {
        let row = self.scratch.choice.shown[0];
        let at = row as usize;
        let loads = self.held(row, ask).held < LOADING;
        self.turns.insert((ask.profile, ask.wanted.base_model), self.columns.identity[at]);
        let ready_at_ms = loads.then(|| ask.now_ms + self.scratch.load_ms[at]);
        let tokens = self.uncached(at, ask.prompt_tokens) as i64;
        let delay_ms = self.columns.delay_ms[at];
        let adapter = ask.adapter.map_or(BASE, |one| self.adapters.take(one.name));
        let booking = self.book(row, adapter, tokens, ready_at_ms);
        if loads {
            self.adapters.clear_account(adapter);
        } else if adapter != BASE {
            self.adapters.pay(adapter, delay_ms, ask.now_ms);
        }
        booking
    }
}
