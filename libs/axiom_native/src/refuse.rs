//! What stands against rows: the first reason against each, counted, and who is set aside while
//! others remain.

use crate::adapters::RESIDENT;
use crate::columns::{FLAPPING, STALE, UNHEARD};
use crate::decide::{Ask, Scratch};
use crate::fleet::Fleet;
use crate::rules::{NO_RING, Rules};

/// What `Rules::late` is indexed with: which late filters stand.
pub const FAILED: u8 = 1;
pub const CLOSED: u8 = 2;
pub const QUARANTINED: u8 = 4;
pub const EXCLUDED: u8 = 8;
pub const SATURATED: u8 = 16;

impl Fleet {
    /// The first reason against each row, counted; who has none is a candidate.
    pub(crate) fn filter(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let Scratch { held, marks, codes, candidates, choice, .. } = scratch;
        let profile = &self.profiles[ask.profile];
        let is_marked = self.mark_rows(ask, marks);
        let keeps_away = ask.adapter.is_some() && profile.quarantine;
        let Rules { rings, late, reasons, .. } = &self.rules;
        choice.counts.clear();
        choice.counts.resize(reasons + 2, 0);
        candidates.clear();
        candidates.resize(self.rows(), 0);
        codes.clear();
        codes.resize(self.rows(), 0);
        let standing = &self.masks[&ask.wanted][..];
        let (wait_ms, slot) = (&self.columns.wait_ms[..], &self.columns.slot[..]);
        let rows = standing.len().min(wait_ms.len()).min(slot.len());
        let mut count = 0;
        for at in 0..rows {
            let mut code = standing[at];
            if code == 0 {
                let mut stands = if wait_ms[at] >= profile.wait_cap_ms { SATURATED } else { 0 };
                if keeps_away && rings[held[at] as usize][slot[at] as usize] == NO_RING {
                    stands |= QUARANTINED;
                }
                if is_marked {
                    stands |= marks[at];
                    if held.get(at).is_none_or(|&held| held == RESIDENT) {
                        stands &= !CLOSED;
                    }
                }
                code = late[stands as usize];
                candidates[count] = at as u32;
                count += usize::from(code == 0);
            }
            codes[at] = code;
            choice.counts[code as usize] += 1;
        }
        candidates.truncate(count);
    }

    /// Mark the few rows that something stands against which is no column; whether there is any.
    fn mark_rows(&self, ask: &Ask<'_>, marks: &mut Vec<u8>) -> bool {
        let known = ask.known();
        let failed = known.map_or(&[][..], |adapter| self.adapters.failed(adapter));
        let closed = if ask.adapter.is_some() { &self.closed[..] } else { &[] };
        if failed.is_empty() && closed.is_empty() && ask.excluded.is_empty() {
            return false;
        }
        marks.clear();
        marks.resize(self.rows(), 0);
        for &row in failed {
            marks[row as usize] |= FAILED;
        }
        for &row in closed {
            let names = self.engines[row as usize].closed.as_deref().unwrap_or_default();
            if known.is_none_or(|adapter| names.binary_search(&adapter).is_err()) {
                marks[row as usize] |= CLOSED;
            }
        }
        for &row in ask.excluded {
            marks[row as usize] |= EXCLUDED;
        }
        true
    }

    /// The soft filter: leave out candidates that can't be relied on while others remain.
    pub(crate) fn set_doubtful_aside(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let Scratch { candidates, choice, codes, .. } = scratch;
        let doubts = &self.columns.doubts;
        if candidates.iter().all(|&row| doubts[row as usize] == 0) {
            return;
        }
        let Rules { stale, flapping, .. } = self.rules;
        let steps = [(UNHEARD, stale), (STALE, stale), (FLAPPING, flapping)];
        for &(doubt, code) in &steps[usize::from(self.probes(ask))..] {
            let is_doubtful = |row: &u32| doubts[*row as usize] & doubt != 0;
            let doubtful = candidates.iter().filter(|row| is_doubtful(row)).count();
            if doubtful > 0 && doubtful < candidates.len() {
                candidates.retain(|row| {
                    let stays = !is_doubtful(row);
                    if !stays {
                        codes[*row as usize] = code;
                    }
                    stays
                });
                choice.counts[0] -= doubtful as u32;
                choice.counts[code as usize] += doubtful as u32;
            }
        }
    }

    pub(crate) fn probes(&self, ask: &Ask<'_>) -> bool {
        ask.request_hash % self.rules.probe_one_in == 0
    }
}
