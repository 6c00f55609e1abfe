//! `axiom_native.Fleet`: what of `axiom_common.policy.fleet.Fleet` is compiled. Objects of Python are
//! made only while the fleet's lock is free: to make them may run anything.

use parking_lot::Mutex;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, intern};

use crate::adapters::Adapters;
use crate::decide::{Ask, Asked, Prefix, QUARANTINED, SATURATED, SHOWN_MAX};
use crate::engines::WaitRule;
use crate::fleet::{
    Figures, Fleet, NO_RING, Picker, Profile, Reported, Rules, STALE, TERMS, UNHEARD,
};
use crate::fleet::{KV, LATENCY, PREFILL, THERMAL, Wanted};
use crate::found::{Found, Row};
use crate::holders::ENGINES_MAX;
use crate::packed::Bytes;
use crate::python::PrefixIndex;
use crate::text::{self, Cut};

/// Bytes of figures: 16 f64, the seats (i64), the doubts (u8).
const FIGURES: usize = 16 * 8 + 8 + 1;
/// Bytes of a prompt's text above which its look-up lets the interpreter's lock go.
const KEEP_LOCK_BYTES: usize = 512 << 10;
/// The names of a query that has no adapter, and of nobody's base model.
const NO_NAME: &str = "";

struct State {
    fleet: Fleet,
    /// Of the engines in rows, so that an answer makes none.
    names: Vec<Py<PyString>>,
    profiles: Vec<Py<PyString>>,
}

/// The part of a fleet that decides.
#[pyclass(frozen, subclass, module = "axiom_native")]
pub struct Decider {
    state: Mutex<State>,
    decided: Py<PyAny>,
    new_tuple: Py<PyAny>,
    roles: Vec<Py<PyAny>>,
    /// By `Held`; the last one is where nobody won.
    load_kinds: Vec<Py<PyAny>>,
    standing: Py<PyAny>,
    size_of: Py<PyAny>,
    cut: Cut,
}

/// A query of Python's, held while it is judged.
struct Query<'py> {
    base_model: Bound<'py, PyString>,
    adapter: Bound<'py, PyString>,
    role: u8,
    rank: i64,
    size_bytes: f64,
    prompt_tokens: i64,
    affinity_hash: u64,
    request_hash: u64,
    excluded: Vec<Bound<'py, PyString>>,
}

/// A prompt's text, and what is known of who holds it.
struct Prompt<'py> {
    index: Bound<'py, PrefixIndex>,
    seed: u64,
    text: Bound<'py, PyBytes>,
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

    fn read_query<'py>(&self, query: &Bound<'py, PyAny>) -> PyResult<Query<'py>> {
        let py = query.py();
        let role = query.getattr(intern!(py, "role"))?;
        let role = self.roles.iter().position(|one| one.is(&role));
        let excluded = query.getattr(intern!(py, "excluded"))?;
        let excluded = excluded.cast::<PyTuple>()?;
        let rank = query.getattr(intern!(py, "rank"))?.extract()?;
        let adapter = query.getattr(intern!(py, "adapter"))?.cast_into::<PyString>()?;
        let mut size_bytes = query.getattr(intern!(py, "size_bytes"))?.extract::<i64>()? as f64;
        if size_bytes == 0.0 && adapter.to_str()? != NO_NAME {
            size_bytes = self.size_of.bind(py).call1((rank,))?.extract()?;
        }
        Ok(Query {
            base_model: query.getattr(intern!(py, "base_model"))?.cast_into::<PyString>()?,
            adapter,
            role: role.ok_or_else(|| PyValueError::new_err("no such role"))? as u8,
            rank,
            size_bytes,
            prompt_tokens: query.getattr(intern!(py, "prompt_tokens"))?.extract()?,
            affinity_hash: query.getattr(intern!(py, "affinity_hash"))?.extract()?,
            request_hash: query.getattr(intern!(py, "request_hash"))?.extract()?,
            excluded: excluded.iter().map(|one| one.cast_into()).collect::<Result<_, _>>()?,
        })
    }

    /// Call `judge` under the lock with the query in the fleet's terms; what stands against its
    /// kind of request is known then.
    fn with_ask<T>(
        &self,
        query: &Query<'_>,
        profile: &Bound<'_, PyString>,
        now_ms: f64,
        prompt: Option<&Prompt<'_>>,
        judge: impl FnOnce(&mut State, &Ask<'_>) -> T,
    ) -> PyResult<T> {
        let (name, adapter) = (profile.to_str()?, query.adapter.to_str()?);
        let is_base = adapter == NO_NAME;
        let wanted = Wanted {
            base_model: text::hash(query.base_model.to_str()?.as_bytes(), 0).max(1),
            role: query.role,
            rank: (!is_base).then_some(query.rank),
        };
        let prompt = prompt.filter(|prompt| !prompt.text.as_bytes().is_empty());
        let found = prompt.map(|prompt| self.look_up(profile.py(), prompt));
        let mut state = self.state.lock();
        while !state.fleet.masks.contains_key(&wanted) {
            let rows = state.fleet.rows();
            drop(state);
            let mask = self.mask(profile.py(), &wanted, rows)?;
            state = self.state.lock();
            if state.fleet.rows() == rows {
                if state.fleet.masks.len() >= state.fleet.rules.masks_max {
                    state.fleet.masks.clear();
                }
                state.fleet.masks.insert(wanted, mask);
            }
        }
        let mut place = None;
        for (n, known) in state.profiles.iter().enumerate() {
            if known.is(profile) || known.bind(profile.py()).to_str()? == name {
                place = Some(n);
                break;
            }
        }
        let place = place.ok_or_else(|| PyKeyError::new_err(name.to_owned()))?;
        let prefix = prompt.zip(found.as_ref()).map(|(prompt, found)| {
            let (any_tier, hbm) = found.rows();
            let hbm: &[Row] = hbm.unwrap_or(any_tier);
            Prefix { text_bytes: prompt.text.as_bytes().len(), any_tier, hbm }
        });
        let mut excluded = Vec::new();
        for engine in &query.excluded {
            excluded.extend(state.fleet.row(engine.to_str()?));
        }
        let ask = Ask {
            wanted,
            adapter: (!is_base)
                .then(|| Asked { name: adapter, known: state.fleet.adapters.find(adapter) }),
            size_bytes: query.size_bytes,
            prompt_tokens: query.prompt_tokens as f64,
            affinity_hash: query.affinity_hash,
            request_hash: query.request_hash,
            now_ms,
            profile: place,
            excluded: &excluded,
            prefix,
        };
        Ok(judge(&mut state, &ask))
    }

    /// Who holds how much of a prompt.
    fn look_up(&self, py: Python<'_>, prompt: &Prompt<'_>) -> Found {
        let (index, seed, text) = (&prompt.index.get().0, prompt.seed, prompt.text.as_bytes());
        let look_up = || {
            let (mut links, mut found) = (Vec::new(), Found::default());
            self.cut.chain(seed, text, &mut links);
            index.lookup(&links, &mut found);
            found
        };
        if text.len() <= KEEP_LOCK_BYTES { look_up() } else { py.detach(look_up) }
    }

    /// What the rules say that stands against each row.
    fn mask(&self, py: Python<'_>, wanted: &Wanted, rows: usize) -> PyResult<Box<[u8]>> {
        let asked = (wanted.base_model, wanted.role, wanted.rank, rows);
        let mask = self.standing.bind(py).call1(asked)?;
        let mask: &[u8] = mask.cast::<PyBytes>()?.as_bytes();
        if mask.len() != rows {
            return Err(PyValueError::new_err("no code of each row"));
        }
        Ok(mask.into())
    }
}

fn read_prompt<'py>(prompt: &Bound<'py, PyAny>) -> PyResult<Prompt<'py>> {
    let (index, seed, text) = prompt.extract()?;
    Ok(Prompt { index, seed, text })
}

fn strs<'a>(names: &'a [Bound<'_, PyString>]) -> PyResult<Vec<&'a str>> {
    names.iter().map(|name| name.to_str()).collect()
}

fn rules_of(rules: &Bound<'_, PyAny>) -> PyResult<Rules> {
    let get = |name: &str| rules.getattr(name);
    let rings: Vec<u8> = get("rings")?.extract()?;
    let late: Vec<(u8, u8)> = get("late")?.extract()?;
    let (fine, fine_text, coarse) = get("cut")?.extract()?;
    let mut table = [0; 32];
    for (stands, code) in table.iter_mut().enumerate() {
        let first = late.iter().find(|(bit, _)| stands as u8 & bit != 0);
        *code = first.map_or(0, |&(_, code)| code);
    }
    let rules = Rules {
        reasons: get("reasons")?.extract()?,
        rings: std::array::from_fn(|held| std::array::from_fn(|slot| rings[held * 3 + slot])),
        late: table,
        stale: get("stale")?.extract()?,
        flapping: get("flapping")?.extract()?,
        probe_one_in: get("probe_one_in")?.extract()?,
        other_tier: get("other_tier")?.extract()?,
        masks_max: get("masks_max")?.extract()?,
        cut: Cut { fine, fine_text, coarse },
    };
    let is_whole = rings.len() == 12 && rings.iter().all(|&ring| ring <= NO_RING);
    let keeps_away = table[QUARANTINED as usize] != 0 && table[SATURATED as usize] != 0;
    if !is_whole || !keeps_away || rules.probe_one_in == 0 || fine == 0 || coarse == 0 {
        return Err(PyValueError::new_err("rules that no fleet can apply"));
    }
    Ok(rules)
}

fn figures_of(bytes: &[u8]) -> Figures {
    let word = |n: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[n * 8..n * 8 + 8]);
        word
    };
    let number = |n: usize| f64::from_le_bytes(word(n));
    let mut terms_ms = [0.0; TERMS];
    for (n, term) in [PREFILL, KV, THERMAL, LATENCY].into_iter().enumerate() {
        terms_ms[term] = number(n);
    }
    Figures {
        terms_ms,
        load_queue_ms: number(4),
        h2d_fixed_ms: number(5),
        h2d_bytes_per_ms: number(6),
        store_fixed_ms: number(7),
        store_bytes_per_ms: number(8),
        kv_headroom: number(9),
        thermal_safety: number(10),
        latency_health: number(11),
        wait: WaitRule {
            base_ms: number(12),
            per_request_ms: number(13),
            per_token_ms: number(14),
            slowdown_per_request_ms: number(15),
            seats: i64::from_le_bytes(word(16)),
        },
        doubts: bytes[FIGURES - 1],
    }
}
