//! The parts of a decision in one piece of memory, laid out as `axiom_common.policy.decided` says:
//! numbers only, which its rules turn into scores when somebody asks.

use smallvec::SmallVec;

use crate::decide::Ask;
use crate::fleet::Fleet;

pub type Bytes = SmallVec<[u8; 1024]>;

impl Fleet {
    /// The parts of the last choice, before anything changed since.
    pub fn packed(&self, ask: &Ask<'_>) -> Bytes {
        let mut bytes = Bytes::new();
        let choice = &self.scratch.choice;
        bytes.extend_from_slice(&self.profiles[ask.profile].wait_cap_ms.to_le_bytes());
        bytes.extend_from_slice(&choice.worst_us.to_le_bytes());
        bytes.push(choice.shown_count as u8);
        let counts = &choice.counts[1..=self.rules.reasons];
        let at = bytes.len();
        bytes.resize(at + 4 * counts.len(), 0);
        for (place, count) in bytes[at..].chunks_exact_mut(4).zip(counts) {
            place.copy_from_slice(&count.to_le_bytes());
        }
        for &row in choice.shown() {
            self.pack_one(row as usize, ask, &mut bytes);
        }
        bytes
    }

    /// What the last choice saw of one row.
    pub fn pack_one(&self, at: usize, ask: &Ask<'_>, bytes: &mut Bytes) {
        let (columns, name) = (&self.columns, self.engines[at].name.as_bytes());
        let seen = self.load_seen(at, ask);
        let numbers = [
            seen.rest_ms,
            seen.h2d_ms,
            seen.cold_ms,
            columns.wait_ms[at],
            columns.kv_headroom[at],
            columns.thermal_safety[at],
            columns.latency_health[at],
            self.scratch.credited.get(at).copied().unwrap_or(0.0),
            self.uncached(at, ask.prompt_tokens),
        ];
        bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(self.scratch.cost_us[at] as i64).to_le_bytes());
        bytes.extend_from_slice(&[seen.holding.held, columns.slot[at]]);
        let terms_ms = self.terms_ms(at, ask.prompt_tokens).map(f64::to_le_bytes);
        bytes.extend_from_slice(terms_ms.as_flattened());
        bytes.extend_from_slice(numbers.map(f64::to_le_bytes).as_flattened());
        bytes.extend_from_slice(name);
    }
}
