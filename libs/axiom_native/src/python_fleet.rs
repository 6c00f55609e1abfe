//! `axiom_native.Decider`: what of `axiom_common.policy.fleet.Fleet` is compiled. Objects of Python are
//! made only while the fleet's lock is free: to make them may run anything.

use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, intern};

use crate::adapters::Adapters;
use crate::columns::{STALE, TERMS, UNHEARD};
use crate::decide::SHOWN_MAX;
use crate::fleet::{Fleet, Reported};
use crate::holders::ENGINES_MAX;
use crate::packed::Bytes;
use crate::python_query::read_prompt;
use crate::python_rules::{FIGURES, figures_of, rules_of};
use crate::rules::{Picker, Profile};
use crate::text::Cut;

pub struct State {
    pub fleet: Fleet,
    /// Of the engines in rows, so that an answer makes none.
    names: Vec<Py<PyString>>,
    pub profiles: Vec<Py<PyString>>,
}

/// The part of a fleet that decides.
#[pyclass(frozen, subclass, module = "axiom_native")]
pub struct Decider {
    pub(crate) state: Mutex<State>,
    decided: Py<PyAny>,
    new_tuple: Py<PyAny>,
    pub(crate) roles: Vec<Py<PyAny>>,
    /// By `Held`; the last one is where nobody won.
    load_kinds: Vec<Py<PyAny>>,
    pub(crate) standing: Py<PyAny>,
    pub(crate) size_of: Py<PyAny>,
    pub(crate) cut: Cut,
}

#[pymethods]
impl Decider {
    #[new]
    fn new(rules: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = rules.py();
        let get = |name: &str| rules.getattr(name);
        let (forget_ms, accounts_max) =
            (get("forget_ms")?.extract()?, get("accounts_max")?.extract()?);
        let all = |name: &str| -> PyResult<Vec<Py<PyAny>>> { get(name)?.extract() };
        if get("shown_max")?.extract::<usize>()? != SHOWN_MAX {
            return Err(PyValueError::new_err("another number of runners-up is compiled"));
        }
        let rules_told = rules_of(rules)?;
        let cut = rules_told.cut;
        let fleet = Fleet::new(rules_told, Adapters::new(forget_ms, accounts_max));
        let state = State { fleet, names: Vec::new(), profiles: Vec::new() };
        Ok(Decider {
            state: Mutex::new(state),
            decided: get("decided")?.unbind(),
            new_tuple: py.get_type::<PyTuple>().getattr("__new__")?.unbind(),
            roles: all("roles")?,
            load_kinds: all("load_kinds")?,
            standing: get("standing")?.unbind(),
            size_of: get("size_of")?.unbind(),
            cut,
        })
    }

    /// `(name, picker, wait cap, weights, quarantine)` of each; turns are kept by name.
    fn replace_profiles(&self, profiles: Vec<ProfileOf<'_>>) {
        let mut state = self.state.lock();
        let before = std::mem::take(&mut state.profiles);
        let old = |n: usize| before[n].to_string();
        let places: Vec<Option<usize>> = (0..before.len())
            .map(|n| profiles.iter().position(|one| one.0.to_string() == old(n)))
            .collect();
        let turns = std::mem::take(&mut state.fleet.turns);
        state.fleet.turns = turns
            .into_iter()
            .filter_map(|((n, base), at)| places[n].map(|place| ((place, base), at)))
            .collect();
        state.fleet.profiles = profiles
            .iter()
            .map(|&(_, picker, wait_cap_ms, weights, quarantine)| Profile {
                picker: [Picker::LeastCost, Picker::LeastLoaded, Picker::RoundRobin]
                    [usize::from(picker).min(2)],
                wait_cap_ms,
                weights,
                quarantine,
            })
            .collect();
        state.profiles = profiles.into_iter().map(|one| one.0.unbind()).collect();
        drop(state);
        drop(before);
    }

    /// Residents are `(adapter, held, tenant 1 | victim 2 | busy 4, remaining ms)`.
    #[pyo3(signature = (name, identity, hbm_slots, residents, failures, closed))]
    fn set_engine(
        &self,
        name: Bound<'_, PyString>,
        identity: u64,
        hbm_slots: i64,
        residents: Vec<(Bound<'_, PyString>, u8, u8, f64)>,
        failures: Vec<Bound<'_, PyString>>,
        closed: Option<Vec<Bound<'_, PyString>>>,
    ) -> PyResult<u32> {
        let mut reported = Vec::with_capacity(residents.len());
        for (adapter, held, flags, remaining_ms) in &residents {
            reported.push(Reported {
                adapter: adapter.to_str()?,
                held: *held,
                is_tenant: flags & 1 != 0,
                is_victim: flags & 2 != 0,
                is_busy: flags & 4 != 0,
                remaining_ms: *remaining_ms,
            });
        }
        let failures = strs(&failures)?;
        let closed = closed.as_ref().map(|names| strs(names)).transpose()?;
        let text = name.to_str()?;
        let mut state = self.state.lock();
        let row = state.fleet.set_engine(
            text,
            identity,
            hbm_slots,
            &reported,
            &failures,
            closed.as_deref(),
        );
        let before = if row as usize == state.names.len() {
            state.names.push(name.unbind());
            None
        } else {
            Some(std::mem::replace(&mut state.names[row as usize], name.unbind()))
        };
        drop(state);
        drop(before);
        Ok(row)
    }

    fn set_figures(&self, row: u32, figures: &[u8]) -> PyResult<()> {
        let mut state = self.state.lock();
        if figures.len() != FIGURES || row as usize >= state.fleet.rows() {
            return Err(PyValueError::new_err("no figures of a row"));
        }
        state.fleet.set_figures(row, &figures_of(figures));
        Ok(())
    }

    /// What stands against rows changed.
    fn forget_standing(&self) {
        self.state.lock().fleet.masks.clear();
    }

    /// The row that the engine had; None: it was not there.
    fn remove_engine(&self, engine: &str) -> Option<u32> {
        self.state.lock().fleet.remove(engine)
    }

    fn set_peer_load(&self, engine: &str, counts: &Bound<'_, PyAny>) -> PyResult<()> {
        let items: Vec<(Bound<'_, PyString>, i64)> = counts
            .call_method0(intern!(counts.py(), "items"))?
            .try_iter()?
            .map(|item| item?.extract())
            .collect::<PyResult<_>>()?;
        let mut counts = Vec::with_capacity(items.len());
        for (adapter, count) in items.iter().filter(|item| item.1 > 0) {
            counts.push((adapter.to_str()?, *count));
        }
        self.state.lock().fleet.set_peers(engine, &counts);
        Ok(())
    }

    fn number(&self, engine: &str) -> Option<u32> {
        self.state.lock().fleet.row(engine).filter(|&row| row < ENGINES_MAX)
    }

    #[pyo3(signature = (query, profile, now_ms, prompt=None))]
    fn choose<'py>(
        &self,
        query: &Bound<'py, PyAny>,
        profile: &Bound<'py, PyString>,
        now_ms: f64,
        prompt: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.decision(query, profile, now_ms, prompt, false)
    }

    #[pyo3(signature = (query, profile, now_ms, prompt=None))]
    fn decide<'py>(
        &self,
        query: &Bound<'py, PyAny>,
        profile: &Bound<'py, PyString>,
        now_ms: f64,
        prompt: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.decision(query, profile, now_ms, prompt, true)
    }

    fn first_token(&self, booking: u64) {
        self.state.lock().fleet.first_token(booking);
    }

    fn release(&self, booking: u64) {
        self.state.lock().fleet.release(booking);
    }

    fn in_flight<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut found = Vec::new();
        {
            let state = self.state.lock();
            for row in 0..state.fleet.rows() {
                let name = state.names[row].clone_ref(py);
                let own = state.fleet.own(row as u32);
                found.extend(own.map(|(a, n)| (name.clone_ref(py), a.to_owned(), n)));
            }
        }
        let counts = PyDict::new(py);
        for (engine, adapter, count) in found {
            counts.set_item((engine, adapter), count)?;
        }
        Ok(counts)
    }

    fn in_flight_on<'py>(&self, py: Python<'py>, engine: &str) -> PyResult<Bound<'py, PyDict>> {
        let mut found = Vec::new();
        {
            let state = self.state.lock();
            if let Some(row) = state.fleet.row_of_own(engine) {
                found.extend(state.fleet.own(row).map(|(name, count)| (name.to_owned(), count)));
            }
        }
        let counts = PyDict::new(py);
        for (adapter, count) in found {
            counts.set_item(adapter, count)?;
        }
        Ok(counts)
    }

    /// The parts of a choice, and `(engine, code or 0, what was seen)` of at most `limit` engines
    /// behind `after`, by id.
    fn judged<'py>(
        &self,
        query: &Bound<'py, PyAny>,
        profile: &Bound<'py, PyString>,
        now_ms: f64,
        prompt: Option<&Bound<'py, PyAny>>,
        after: &str,
        limit: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyList>)> {
        let py = query.py();
        let query = self.read_query(query)?;
        let prompt = prompt.map(read_prompt).transpose()?;
        self.with_ask(&query, profile, now_ms, prompt.as_ref(), |state, ask| {
            state.fleet.choose(ask);
            let mut engines: Vec<_> = (0..state.fleet.rows())
                .filter(|&row| state.fleet.engines[row].present)
                .map(|row| (row, &*state.fleet.engines[row].name))
                .filter(|(_, name)| *name > after)
                .collect();
            engines.sort_unstable_by_key(|&(_, name)| name);
            let codes = &state.fleet.scratch.codes;
            let seen: Vec<_> = engines
                .into_iter()
                .take(limit)
                .map(|(row, _)| {
                    let mut bytes = Bytes::new();
                    if codes[row] == 0 {
                        state.fleet.pack_one(row, ask, &mut bytes);
                    }
                    (state.names[row].clone_ref(py), codes[row], bytes)
                })
                .collect();
            (state.fleet.packed(ask), seen)
        })
        .and_then(|(parts, seen)| {
            let all = PyList::empty(py);
            for (name, code, bytes) in seen {
                all.append((name, code, PyBytes::new(py, &bytes)))?;
            }
            Ok((PyBytes::new(py, &parts), all))
        })
    }

    /// Adapters' names that are kept: for tests, which see that they go.
    #[getter]
    fn names_kept(&self) -> usize {
        self.state.lock().fleet.adapters.count()
    }

    /// Rows there are, those that are free included.
    #[getter]
    fn rows(&self) -> usize {
        self.state.lock().fleet.rows()
    }
}

type ProfileOf<'py> = (Bound<'py, PyString>, u8, f64, [f64; TERMS], bool);

impl Decider {
    fn decision<'py>(
        &self,
        query: &Bound<'py, PyAny>,
        profile: &Bound<'py, PyString>,
        now_ms: f64,
        prompt: Option<&Bound<'py, PyAny>>,
        books: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = query.py();
        let query = self.read_query(query)?;
        let prompt = prompt.map(read_prompt).transpose()?;
        let (parts, won, booking) =
            self.with_ask(&query, profile, now_ms, prompt.as_ref(), |state, ask| {
                state.fleet.choose(ask);
                let parts = state.fleet.packed(ask);
                let choice = &state.fleet.scratch.choice;
                let Some(&row) = choice.shown().first() else { return (parts, None, 0) };
                let held = state.fleet.load_seen(row as usize, ask).holding.held;
                let doubts = state.fleet.columns.doubts[row as usize];
                let name = state.names[row as usize].clone_ref(py);
                let booking = if books { state.fleet.book_choice(ask) } else { 0 };
                (parts, Some((name, held, doubts & (STALE | UNHEARD) != 0)), booking)
            })?;
        let (engine, load, stale) = match won {
            Some((name, held, stale)) => (Some(name), &self.load_kinds[held as usize], stale),
            None => (None, &self.load_kinds[self.load_kinds.len() - 1], false),
        };
        let fields = PyTuple::new(
            py,
            [
                profile.clone().into_any(),
                engine.into_bound_py_any(py)?,
                load.bind(py).clone(),
                booking.into_bound_py_any(py)?,
                stale.into_bound_py_any(py)?,
                PyBytes::new(py, &parts).into_any(),
            ],
        )?;
        self.new_tuple.bind(py).call1((&self.decided, fields))
    }
}

fn strs<'a>(names: &'a [Bound<'_, PyString>]) -> PyResult<Vec<&'a str>> {
    names.iter().map(|name| name.to_str()).collect()
}
