//! The fleet: which engine is in which row, and what it reported. `bookings` has what is in flight
//! there; `decide` judges all rows.

use std::collections::HashMap;

use crate::adapters::{AdapterId, Adapters};
use crate::bookings::Booking;
use crate::columns::{Columns, Figures, Wanted};
use crate::decide::Scratch;
use crate::engines::{Engine, Resident};
use crate::numbered::Numbered;
use crate::rules::{Profile, Rules};

/// An adapter in an engine's report, by name.
pub struct Reported<'a> {
    pub adapter: &'a str,
    pub held: u8,
    pub is_tenant: bool,
    pub is_victim: bool,
    pub is_busy: bool,
    pub remaining_ms: f64,
}

pub struct Fleet {
    pub rules: Rules,
    pub columns: Columns,
    pub adapters: Adapters,
    pub engines: Vec<Engine>,
    /// Rows of engines where nobody could load anything.
    pub closed: Vec<u32>,
    pub masks: Numbered<Wanted, Box<[u8]>>,
    pub profiles: Vec<Profile>,
    /// By profile and base model: the identity that round robin took last.
    pub turns: Numbered<(usize, u64), u64>,
    pub scratch: Scratch,
    by_name: HashMap<Box<str>, u32>,
    vacant: Vec<u32>,
    pub(crate) bookings: Numbered<u64, Booking>,
    pub(crate) last_booking: u64,
}

impl Fleet {
    pub fn new(rules: Rules, adapters: Adapters) -> Fleet {
        Fleet {
            rules,
            columns: Columns::default(),
            adapters,
            engines: Vec::new(),
            closed: Vec::new(),
            masks: Numbered::default(),
            profiles: Vec::new(),
            turns: Numbered::default(),
            scratch: Scratch::default(),
            by_name: HashMap::new(),
            vacant: Vec::new(),
            bookings: Numbered::default(),
            last_booking: 0,
        }
    }

    pub fn rows(&self) -> usize {
        self.engines.len()
    }

    /// The row of an engine that is there.
    pub fn row(&self, engine: &str) -> Option<u32> {
        let row = *self.by_name.get(engine)?;
        self.engines[row as usize].present.then_some(row)
    }

    /// Add an engine or replace what it is and holds; its figures follow.
    pub fn set_engine(
        &mut self,
        name: &str,
        identity: u64,
        hbm_slots: i64,
        residents: &[Reported<'_>],
        failures: &[&str],
        closed: Option<&[&str]>,
    ) -> u32 {
        let row = self.take_row(name);
        let new: Vec<Resident> = residents
            .iter()
            .map(|one| Resident {
                adapter: self.adapters.take(one.adapter),
                held: one.held,
                is_tenant: one.is_tenant,
                is_victim: one.is_victim,
                is_busy: one.is_busy,
                remaining_ms: one.remaining_ms,
            })
            .collect();
        let failures: Vec<_> = failures.iter().map(|name| self.adapters.take(name)).collect();
        let closed = closed.map(|names| {
            let mut names: Vec<_> = names.iter().map(|name| self.adapters.take(name)).collect();
            names.sort_unstable();
            names
        });
        let mut changed: Vec<_> = new.iter().map(|one| one.adapter).collect();
        let engine = &mut self.engines[row as usize];
        changed.extend(engine.uses.iter().map(|one| one.adapter));
        changed.extend(engine.residents.iter().map(|one| one.adapter));
        let before = (
            std::mem::replace(&mut engine.residents, new),
            std::mem::replace(&mut engine.failures, failures),
            std::mem::replace(&mut engine.closed, closed),
        );
        engine.present = true;
        engine.hbm_slots = hbm_slots;
        engine.share_slots();
        self.columns.identity[row as usize] = identity;
        self.mark(row);
        for adapter in changed {
            self.index(row, adapter);
        }
        self.drop_names(row, before);
        row
    }

    /// Replace the figures of an engine that is there.
    pub fn set_figures(&mut self, row: u32, figures: &Figures) {
        self.engines[row as usize].wait = figures.wait;
        self.columns.write(row as usize, figures);
        self.count(row);
    }

    /// The engine takes no more requests. Own ones there last until they end. Returns its row.
    pub fn remove(&mut self, name: &str) -> Option<u32> {
        let row = self.row(name)?;
        let engine = &mut self.engines[row as usize];
        engine.present = false;
        let before = (
            std::mem::take(&mut engine.residents),
            std::mem::take(&mut engine.failures),
            engine.closed.take(),
        );
        let held: Vec<_> = before.0.iter().map(|one| one.adapter).collect();
        let used: Vec<_> = engine.uses.iter().map(|one| one.adapter).collect();
        engine.evicted.clear();
        self.mark(row);
        for adapter in held.into_iter().chain(used) {
            self.adapters.set_holder(adapter, row, None);
        }
        self.drop_names(row, before);
        self.forget_peers(row);
        self.masks.clear();
        self.leave_row(row);
        Some(row)
    }

    /// The row of an engine that is there or has own requests.
    pub fn row_of_own(&self, engine: &str) -> Option<u32> {
        self.by_name.get(engine).copied()
    }

    fn take_row(&mut self, name: &str) -> u32 {
        if let Some(&row) = self.by_name.get(name) {
            return row;
        }
        let row = self.vacant.pop().unwrap_or_else(|| {
            self.columns.grow();
            self.engines.push(Engine::new(""));
            (self.engines.len() - 1) as u32
        });
        self.engines[row as usize] = Engine::new(name);
        self.by_name.insert(name.into(), row);
        row
    }

    /// Free the row of an engine that is gone once nothing is booked there.
    pub(crate) fn leave_row(&mut self, row: u32) {
        let engine = &self.engines[row as usize];
        if engine.present || !engine.uses.is_empty() {
            return;
        }
        if self.by_name.remove(&engine.name).is_some() {
            self.engines[row as usize] = Engine::new("");
            self.vacant.push(row);
        }
    }

    /// Mark where its adapters failed, and whether it is closed.
    fn mark(&mut self, row: u32) {
        let engine = &self.engines[row as usize];
        for &adapter in &engine.failures {
            self.adapters.set_failed(adapter, row, true);
        }
        self.closed.retain(|&other| other != row);
        if engine.closed.is_some() {
            self.closed.push(row);
        }
    }

    /// Let go of the names of a report that was replaced.
    fn drop_names(
        &mut self,
        row: u32,
        (residents, failures, closed): (Vec<Resident>, Vec<AdapterId>, Option<Vec<AdapterId>>),
    ) {
        for adapter in failures {
            if !self.engines[row as usize].failures.contains(&adapter) {
                self.adapters.set_failed(adapter, row, false);
            }
            self.adapters.leave(adapter);
        }
        for one in residents {
            self.adapters.leave(one.adapter);
        }
        for adapter in closed.into_iter().flatten() {
            self.adapters.leave(adapter);
        }
    }
}
