//! What Python asks, in the fleet's terms: its objects are read before the fleet is locked.

use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::columns::Wanted;
use crate::decide::{Ask, Asked, Prefix};
use crate::found::{Found, Row};
use crate::python::PrefixIndex;
use crate::python_fleet::{Decider, State};
use crate::text;

/// Bytes of a prompt's text above which its look-up lets the interpreter's lock go.
const KEEP_LOCK_BYTES: usize = 512 << 10;
/// The names of a query that has no adapter, and of nobody's base model.
const NO_NAME: &str = "";

/// A query of Python's, held while it is judged.
pub struct Query<'py> {
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
pub struct Prompt<'py> {
    index: Bound<'py, PrefixIndex>,
    seed: u64,
    text: Bound<'py, PyBytes>,
    beyond_bytes: usize,
}

impl Decider {
    pub(crate) fn read_query<'py>(&self, query: &Bound<'py, PyAny>) -> PyResult<Query<'py>> {
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
    pub(crate) fn with_ask<T>(
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
            let prompt_bytes = prompt.text.as_bytes().len().saturating_add(prompt.beyond_bytes);
            Prefix { prompt_bytes, any_tier, hbm }
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

pub(crate) fn read_prompt<'py>(prompt: &Bound<'py, PyAny>) -> PyResult<Prompt<'py>> {
    let (index, seed, text, beyond_bytes) = prompt.extract()?;
    Ok(Prompt { index, seed, text, beyond_bytes })
}
