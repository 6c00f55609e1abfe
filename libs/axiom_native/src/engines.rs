//! One engine: what it holds, by its report and by the requests in flight there, and what a load of
//! one more adapter would get. As `axiom_common.policy.occupancy` and `.state.bookings` tell it.

use crate::adapters::{AdapterId, BASE, HOST, Held, Holding, LOADING, NO_LOAD_MS, NOT, RESIDENT};

/// What a load would get, as `Slot` of the affinity rule has it.
pub type Slot = u8;
pub const BUSY: Slot = 0;
pub const IDLE_VICTIM: Slot = 1;
pub const FREE: Slot = 2;

#[derive(Clone, Copy)]
pub struct WaitRule {
    pub base_ms: f64,
    pub per_request_ms: f64,
    pub per_token_ms: f64,
    pub seats: i64,
    pub slowdown_per_request_ms: f64,
}

/// An adapter in an engine's report.
pub struct Resident {
    pub adapter: AdapterId,
    pub held: Held,
    /// It has an HBM slot; a load may push it out while it is idle; the engine says that it is busy.
    pub is_tenant: bool,
    pub is_victim: bool,
    pub is_busy: bool,
    pub remaining_ms: f64,
}

/// Requests of one adapter in flight: own ones, those of peers, and when the load ends that own
/// ones wait for.
pub struct Use {
    pub adapter: AdapterId,
    pub own: i64,
    pub peers: i64,
    pub ready_at_ms: f64,
}

pub struct Engine {
    pub name: Box<str>,
    /// False: it is gone, and only own requests are still there.
    pub present: bool,
    pub wait: WaitRule,
    pub hbm_slots: i64,
    pub residents: Vec<Resident>,
    pub failures: Vec<AdapterId>,
    /// What it answers to by name, sorted, where nobody could load more.
    pub closed: Option<Vec<AdapterId>>,
    pub uses: Vec<Use>,
    pub tokens: i64,
    pub slot: Slot,
    /// Tenants whose slots are taken by loads that are booked.
    pub evicted: Vec<AdapterId>,
}

impl Engine {
    pub fn new(name: &str) -> Engine {
        Engine {
            name: name.into(),
            present: false,
            wait: WaitRule {
                base_ms: 0.0,
                per_request_ms: 0.0,
                per_token_ms: 0.0,
                seats: 0,
                slowdown_per_request_ms: 0.0,
            },
            hbm_slots: 0,
            residents: Vec::new(),
            failures: Vec::new(),
            closed: None,
            uses: Vec::new(),
            tokens: 0,
            slot: FREE,
            evicted: Vec::new(),
        }
    }

    pub fn in_flight(&self) -> i64 {
        self.uses.iter().map(|one| one.own + one.peers).sum()
    }

    pub fn using(&self, adapter: AdapterId) -> Option<usize> {
        self.uses.iter().position(|one| one.adapter == adapter)
    }

    pub fn wait_ms(&self, in_flight: i64) -> f64 {
        let queued = (in_flight - self.wait.seats + 1).max(0);
        self.wait.base_ms
            + self.wait.per_request_ms * queued as f64
            + self.wait.per_token_ms * self.tokens as f64
    }

    /// Share out the slots anew. Returns those of whom it is another matter now.
    pub fn share_slots(&mut self) -> Vec<AdapterId> {
        let (slot, evicted) = self.occupancy();
        self.slot = slot;
        if evicted == self.evicted {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.evicted, evicted);
        let gone = before.iter().filter(|&adapter| !self.evicted.contains(adapter));
        let come = self.evicted.iter().filter(|&adapter| !before.contains(adapter));
        gone.chain(come).copied().collect()
    }

    fn occupancy(&self) -> (Slot, Vec<AdapterId>) {
        let tenants = || self.residents.iter().filter(|one| one.is_tenant);
        let claims = self.uses.iter().filter(|one| {
            one.adapter != BASE && !tenants().any(|tenant| tenant.adapter == one.adapter)
        });
        let free = (self.hbm_slots - tenants().count() as i64).max(0) - claims.count() as i64;
        if free > 0 {
            return (FREE, Vec::new());
        }
        let mut idle = tenants()
            .filter(|one| one.is_victim && !one.is_busy && self.using(one.adapter).is_none());
        let pushed_out = idle.by_ref().take(-free as usize);
        let evicted =
            pushed_out.filter(|one| one.held == RESIDENT).map(|one| one.adapter).collect();
        (if idle.next().is_some() { IDLE_VICTIM } else { BUSY }, evicted)
    }

    /// How it holds an adapter; None: not at all.
    pub fn holding(&self, adapter: AdapterId) -> Option<Holding> {
        if self.evicted.contains(&adapter) {
            return Some(Holding::of(HOST));
        }
        let reported = self.residents.iter().find(|one| one.adapter == adapter);
        let used = self.using(adapter).map(|at| &self.uses[at]);
        match (reported, used) {
            (Some(one), _) if one.held == RESIDENT => Some(Holding::of(RESIDENT)),
            (Some(one), _) if one.held == LOADING => {
                Some(Holding { remaining_ms: one.remaining_ms, ..Holding::of(LOADING) })
            }
            (_, Some(used)) if used.own > 0 => {
                Some(Holding { ready_at_ms: used.ready_at_ms, ..Holding::of(LOADING) })
            }
            (_, Some(_)) => Some(Holding::of(LOADING)),
            (Some(one), None) if one.held == HOST => Some(Holding::of(HOST)),
            _ => None,
        }
    }

    /// When the last load ends that is booked and not yet reported.
    pub fn loads_done_at_ms(&self) -> f64 {
        let held = |adapter| {
            self.residents.iter().find(|one| one.adapter == adapter).map_or(NOT, |one| one.held)
        };
        let mut done_at_ms = NO_LOAD_MS;
        for one in &self.uses {
            if one.ready_at_ms > done_at_ms && held(one.adapter) < LOADING {
                done_at_ms = one.ready_at_ms;
            }
        }
        done_at_ms
    }
}
