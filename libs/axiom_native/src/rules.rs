//! What the policy says and the compiled part only applies.

use crate::columns::TERMS;
use crate::text::Cut;

pub const RINGS: usize = 3;
/// In place of a ring: the adapter is kept from the engine.
pub const NO_RING: u8 = RINGS as u8;

/// Codes are those of `axiom_common.policy.view`.
pub struct Rules {
    /// Reasons there are: 0 is none, and the code beyond the last one stands on vacant rows.
    pub reasons: usize,
    /// By `Held` and `Slot`: how far out an engine is for an adapter.
    pub rings: [[u8; 3]; 4],
    /// By the bits of `refuse`: the code of the first reason that stands.
    pub late: [u8; 32],
    pub stale: u8,
    pub flapping: u8,
    pub probe_one_in: u64,
    /// What a token is credited with that is held, but not in HBM.
    pub other_tier: f64,
    pub masks_max: usize,
    pub cut: Cut,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Picker {
    LeastCost,
    LeastLoaded,
    RoundRobin,
}

pub struct Profile {
    pub picker: Picker,
    pub wait_cap_ms: f64,
    pub weights: [f64; TERMS],
    pub quarantine: bool,
}
