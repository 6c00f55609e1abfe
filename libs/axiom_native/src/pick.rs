//! Who of the candidates wins and who comes next: by class, which is how far out an engine is for
//! the adapter, and within one by what the profile's picker goes by.

use crate::columns::UNHEARD;
use crate::decide::{Ask, Choice, SHOWN_MAX, Scratch};
use crate::fleet::Fleet;
use crate::rules::{Picker, RINGS};

/// Before the rings: engines that are probed.
const PROBED: usize = 0;
const CLASSES: usize = 1 + RINGS;

type Key = (i64, u64);

impl Fleet {
    /// The best of each class of candidates, then who may win, then who comes next.
    pub(crate) fn pick(&self, ask: &Ask<'_>, scratch: &mut Scratch) {
        let Scratch { candidates, choice, cost_us, held, load_ms, .. } = scratch;
        let columns = &self.columns;
        let profile = &self.profiles[ask.profile];
        let has_rings = ask.adapter.is_some() && profile.quarantine;
        let probes = self.probes(ask);
        let turn = self.turns.get(&(ask.profile, ask.wanted.base_model)).copied().unwrap_or(0);
        let mut classes: [Class; CLASSES] = std::array::from_fn(|_| Class::default());
        let mut worst_us = 0;
        for &row in &*candidates {
            let at = row as usize;
            let cost = cost_us[at] as i64;
            worst_us = worst_us.max(cost);
            let mut class = 1;
            if has_rings {
                class +=
                    usize::from(self.rules.rings[held[at] as usize][columns.slot[at] as usize]);
            }
            if probes && columns.doubts[at] & UNHEARD != 0 {
                class = PROBED;
            }
            let class = &mut classes[class];
            class.count += 1;
            if has_rings {
                class.delay_ms = class.delay_ms.min(columns.delay_ms[at]);
                class.load_ms = class.load_ms.min(load_ms[at]);
            }
            let identity = columns.identity[at];
            match profile.picker {
                Picker::LeastCost => {
                    class.offer(row, cost, || !rendezvous(identity, ask.affinity_hash));
                }
                Picker::LeastLoaded => {
                    let in_flight = columns.in_flight[at] as i64;
                    class.offer(row, in_flight, || !rendezvous(identity, ask.request_hash));
                }
                Picker::RoundRobin => class.offer(row, i64::from(identity <= turn), || identity),
            }
        }
        choice.worst_us = worst_us.max(1);
        choice.shown_count = 0;
        let waited_ms =
            ask.known().map_or(0.0, |adapter| self.adapters.waited_ms(adapter, ask.now_ms));
        let open = if classes[PROBED].count > 0 { 0 } else { open_rings(&classes[1..], waited_ms) };
        let (may_win, further) = classes.split_at(1 + open);
        choice.show(may_win);
        for class in further.chunks(1) {
            choice.show(class);
        }
    }
}

/// How many rings may win, of candidates by ring.
fn open_rings(rings: &[Class], waited_ms: f64) -> usize {
    for open in 1..RINGS {
        let (near, far) = rings.split_at(open);
        let is_all = far.iter().all(|ring| ring.count == 0);
        let is_none = near.iter().all(|ring| ring.count == 0);
        if is_all || !is_none && !load_is_worth_it(near, far, waited_ms) {
            return open;
        }
    }
    RINGS
}

/// Whether a load further out beats the delay at the best of those near.
fn load_is_worth_it(near: &[Class], far: &[Class], waited_ms: f64) -> bool {
    let delay_ms = near.iter().fold(f64::INFINITY, |least, ring| least.min(ring.delay_ms));
    let load_ms = far.iter().fold(f64::INFINITY, |least, ring| least.min(ring.load_ms));
    delay_ms > 0.0 && delay_ms > load_ms && waited_ms >= load_ms
}

/// Candidates of one kind: the best of them, best first, and what the best would lose.
struct Class {
    count: usize,
    best: [(Key, u32); SHOWN_MAX],
    delay_ms: f64,
    load_ms: f64,
}

impl Default for Class {
    fn default() -> Class {
        let nobody = ((i64::MAX, u64::MAX), 0);
        Class {
            count: 0,
            best: [nobody; SHOWN_MAX],
            delay_ms: f64::INFINITY,
            load_ms: f64::INFINITY,
        }
    }
}

impl Class {
    /// `second` is asked for only where `first` does not settle it.
    #[inline(always)]
    fn offer(&mut self, row: u32, first: i64, second: impl Fn() -> u64) {
        let last = &self.best[SHOWN_MAX - 1].0;
        if self.count > SHOWN_MAX && first > last.0 {
            return;
        }
        let key = (first, second());
        let held = (self.count - 1).min(SHOWN_MAX);
        let at = self.best[..held].partition_point(|one| one.0 <= key);
        if at < SHOWN_MAX {
            self.best.copy_within(at..SHOWN_MAX - 1, at + 1);
            self.best[at] = (key, row);
        }
    }

    fn best(&self) -> &[(Key, u32)] {
        &self.best[..self.count.min(SHOWN_MAX)]
    }
}

impl Choice {
    /// Show the best of these classes taken together, as long as there is room.
    fn show(&mut self, classes: &[Class]) {
        let mut next = [0; CLASSES];
        while self.shown_count < SHOWN_MAX {
            let heads = classes
                .iter()
                .enumerate()
                .filter_map(|(n, class)| class.best().get(next[n]).map(|one| (*one, n)));
            let Some(((_, row), n)) = heads.min() else { return };
            self.shown[self.shown_count] = row;
            self.shown_count += 1;
            next[n] += 1;
        }
    }

    pub fn shown(&self) -> &[u32] {
        &self.shown[..self.shown_count]
    }
}

/// The finaliser of splitmix64, as `axiom_common.policy.rendezvous`.
fn rendezvous(identity: u64, key: u64) -> u64 {
    let mut mixed = identity ^ key;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
