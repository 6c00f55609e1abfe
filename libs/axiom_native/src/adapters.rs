//! Adapters by name, as small numbers while anybody uses them: who holds each, where its load
//! failed, and what waiting for it has cost.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub type AdapterId = u32;
/// The base model: no adapter. Always there.
pub const BASE: AdapterId = 0;

/// How an engine holds an adapter; the best is the last.
pub type Held = u8;
pub const NOT: Held = 0;
pub const HOST: Held = 1;
pub const LOADING: Held = 2;
pub const RESIDENT: Held = 3;

pub const NO_LOAD_MS: f64 = f64::NEG_INFINITY;

#[derive(Clone, Copy, PartialEq)]
pub struct Holding {
    pub held: Held,
    pub remaining_ms: f64,
    pub ready_at_ms: f64,
}

impl Holding {
    pub fn of(held: Held) -> Holding {
        Holding { held, remaining_ms: 0.0, ready_at_ms: NO_LOAD_MS }
    }

    /// The rest of a load under way.
    pub fn rest_ms(&self, now_ms: f64) -> f64 {
        self.remaining_ms.max(self.ready_at_ms - now_ms)
    }
}

struct Account {
    waited_ms: f64,
    paid_at_ms: f64,
    payment: u64,
}

struct Adapter {
    name: Arc<str>,
    users: usize,
    /// By row.
    holders: Vec<(u32, Holding)>,
    failed: Vec<u32>,
    account: Option<Account>,
}

pub struct Adapters {
    all: Vec<Adapter>,
    by_name: HashMap<Arc<str>, AdapterId>,
    free: Vec<AdapterId>,
    accounts: usize,
    payments: u64,
    /// (payment, whose), oldest first; those that are not the last of their account are void.
    paid: VecDeque<(u64, AdapterId)>,
    forget_ms: f64,
    accounts_max: usize,
}

impl Adapters {
    pub fn new(forget_ms: f64, accounts_max: usize) -> Adapters {
        let mut adapters = Adapters {
            all: Vec::new(),
            by_name: HashMap::new(),
            free: Vec::new(),
            accounts: 0,
            payments: 0,
            paid: VecDeque::new(),
            forget_ms,
            accounts_max,
        };
        adapters.take("");
        adapters
    }

    pub fn find(&self, name: &str) -> Option<AdapterId> {
        self.by_name.get(name).copied()
    }

    pub fn name(&self, adapter: AdapterId) -> &str {
        &self.all[adapter as usize].name
    }

    /// Names that are in use, the base model's too.
    pub fn count(&self) -> usize {
        self.by_name.len()
    }

    /// One more user of a name, until it `leave`s.
    pub fn take(&mut self, name: &str) -> AdapterId {
        if let Some(adapter) = self.find(name) {
            self.all[adapter as usize].users += 1;
            return adapter;
        }
        let name: Arc<str> = name.into();
        let new = Adapter {
            name: name.clone(),
            users: 1,
            holders: Vec::new(),
            failed: Vec::new(),
            account: None,
        };
        let adapter = match self.free.pop() {
            Some(adapter) => {
                self.all[adapter as usize] = new;
                adapter
            }
            None => {
                self.all.push(new);
                (self.all.len() - 1) as AdapterId
            }
        };
        self.by_name.insert(name, adapter);
        adapter
    }

    /// One more user of a name that is in use.
    pub fn take_again(&mut self, adapter: AdapterId) {
        self.all[adapter as usize].users += 1;
    }

    /// One user less.
    pub fn leave(&mut self, adapter: AdapterId) {
        let one = &mut self.all[adapter as usize];
        one.users -= 1;
        if one.users == 0 {
            (one.holders, one.failed) = (Vec::new(), Vec::new());
            let name = one.name.clone();
            self.by_name.remove(&name);
            self.free.push(adapter);
        }
    }

    pub fn holders(&self, adapter: AdapterId) -> &[(u32, Holding)] {
        &self.all[adapter as usize].holders
    }

    pub fn set_holder(&mut self, adapter: AdapterId, row: u32, holding: Option<Holding>) {
        let holders = &mut self.all[adapter as usize].holders;
        match (holders.binary_search_by_key(&row, |holder| holder.0), holding) {
            (Ok(at), Some(holding)) => holders[at].1 = holding,
            (Ok(at), None) => drop(holders.remove(at)),
            (Err(at), Some(holding)) => holders.insert(at, (row, holding)),
            (Err(_), None) => {}
        }
    }

    pub fn failed(&self, adapter: AdapterId) -> &[u32] {
        &self.all[adapter as usize].failed
    }

    pub fn set_failed(&mut self, adapter: AdapterId, row: u32, failed: bool) {
        let rows = &mut self.all[adapter as usize].failed;
        rows.retain(|&other| other != row);
        if failed {
            rows.push(row);
        }
    }

    /// What waiting has cost since the last load.
    pub fn waited_ms(&self, adapter: AdapterId, now_ms: f64) -> f64 {
        match &self.all[adapter as usize].account {
            Some(account) if now_ms - account.paid_at_ms <= self.forget_ms => account.waited_ms,
            _ => 0.0,
        }
    }

    pub fn pay(&mut self, adapter: AdapterId, delay_ms: f64, now_ms: f64) {
        let waited_ms = self.waited_ms(adapter, now_ms) + delay_ms;
        self.payments += 1;
        let account = Account { waited_ms, paid_at_ms: now_ms, payment: self.payments };
        let one = &mut self.all[adapter as usize];
        if one.account.replace(account).is_none() {
            one.users += 1;
            self.accounts += 1;
        }
        self.paid.push_back((self.payments, adapter));
        if self.accounts > self.accounts_max {
            self.close_oldest();
        }
        if self.paid.len() > 2 * self.accounts + 64 {
            let all = &self.all;
            self.paid.retain(|&(payment, whose)| stands(all, payment, whose));
        }
    }

    /// The account is empty from now on.
    pub fn clear_account(&mut self, adapter: AdapterId) {
        if self.all[adapter as usize].account.take().is_some() {
            self.accounts -= 1;
            self.leave(adapter);
        }
    }

    fn close_oldest(&mut self) {
        while let Some((payment, adapter)) = self.paid.pop_front() {
            if stands(&self.all, payment, adapter) {
                self.clear_account(adapter);
                return;
            }
        }
    }
}

fn stands(all: &[Adapter], payment: u64, whose: AdapterId) -> bool {
    all[whose as usize].account.as_ref().is_some_and(|account| account.payment == payment)
}
