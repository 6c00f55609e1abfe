//! The module `axiom_native`: buffers in, buffers out. Short calls keep the interpreter's lock, for
//! giving it up can cost more than they take.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::found::{Found, Row};
use crate::holders::ENGINES_MAX;
use crate::index::{ANNOUNCED, HASH, Index, SHARDS, Tier};

/// Raised by one when calls change; `axiom_common.runtime.native` names the one it speaks.
const SURFACE: u32 = 4;
/// Bytes of a message above which its call lets the interpreter's lock go: 512 chunks.
const KEEP_LOCK_BYTES: usize = 512 * ANNOUNCED;
/// Likewise of a chain: one of which each chunk is another engine's last takes 25 us by 1,024.
const KEEP_LOCK_CHAIN_BYTES: usize = 1_024 * HASH;

/// `axiom_common.state.prefix_index.PrefixIndex`, compiled.
#[pyclass(frozen, module = "axiom_native")]
pub struct PrefixIndex(pub Index);

#[pymethods]
impl PrefixIndex {
    #[new]
    fn new(entries_max: usize) -> PyResult<Self> {
        if entries_max < SHARDS {
            let message = format!("entries_max is at least {SHARDS}, not {entries_max}");
            return Err(PyValueError::new_err(message));
        }
        Ok(PrefixIndex(Index::new(entries_max)))
    }

    fn apply(
        &self,
        py: Python<'_>,
        engine: i64,
        announced: &Bound<'_, PyAny>,
        withdrawn: &Bound<'_, PyAny>,
        tier: i64,
    ) -> PyResult<()> {
        let (engine, tier) = (engine_of(engine)?, tier_of(tier)?);
        let (news, gone) = (Items::of(announced, ANNOUNCED)?, Items::of(withdrawn, HASH)?);
        let (news, gone) = (news.bytes(), gone.bytes());
        if news.len() + gone.len() <= KEEP_LOCK_BYTES {
            self.0.apply(engine, news, gone, tier);
        } else {
            py.detach(|| self.0.apply(engine, news, gone, tier));
        }
        Ok(())
    }

    fn clear(&self, py: Python<'_>, engine: i64) -> PyResult<()> {
        let engine = engine_of(engine)?;
        py.detach(|| self.0.clear(engine));
        Ok(())
    }

    fn snapshot_begin(&self, engine: i64, seq: u64) -> PyResult<()> {
        self.0.snapshot_begin(engine_of(engine)?, seq);
        Ok(())
    }

    fn snapshot_part(
        &self,
        py: Python<'_>,
        engine: i64,
        seq: u64,
        announced: &Bound<'_, PyAny>,
        tier: i64,
    ) -> PyResult<bool> {
        let (engine, tier) = (engine_of(engine)?, tier_of(tier)?);
        let news = Items::of(announced, ANNOUNCED)?;
        let news = news.bytes();
        Ok(py.detach(|| self.0.snapshot_part(engine, seq, news, tier)))
    }

    fn snapshot_end(&self, py: Python<'_>, engine: i64, seq: u64) -> PyResult<bool> {
        let engine = engine_of(engine)?;
        Ok(py.detach(|| self.0.snapshot_end(engine, seq)))
    }

    fn lookup<'py>(
        &self,
        py: Python<'py>,
        chain: &Bound<'py, PyAny>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let chain = Items::of(chain, HASH)?;
        let mut found = Found::default();
        let chain = chain.bytes();
        if chain.len() <= KEEP_LOCK_CHAIN_BYTES {
            self.0.lookup(chain, &mut found);
        } else {
            py.detach(|| self.0.lookup(chain, &mut found));
        }
        let (any_tier, hbm) = found.rows();
        let any_tier = PyBytes::new(py, bytes_of(any_tier));
        let hbm = hbm.map_or_else(|| any_tier.clone(), |rows| PyBytes::new(py, bytes_of(rows)));
        Ok((hbm, any_tier))
    }

    #[getter]
    fn entries(&self) -> usize {
        self.0.entries()
    }

    #[getter]
    fn dropped(&self) -> u64 {
        self.0.dropped()
    }
}

/// A caller's buffer, held until the call ends.
enum Items<'a> {
    Bytes(&'a [u8]),
    Buffer(PyUntypedBuffer),
}

impl<'a> Items<'a> {
    fn of(object: &'a Bound<'_, PyAny>, size: usize) -> PyResult<Self> {
        let items = if let Ok(bytes) = object.cast::<PyBytes>() {
            Items::Bytes(bytes.as_bytes())
        } else {
            let buffer = PyUntypedBuffer::get(object)?;
            if !buffer.is_c_contiguous() {
                return Err(PyBufferError::new_err("the buffer is not contiguous"));
            }
            Items::Buffer(buffer)
        };
        let length = items.bytes().len();
        if length % size != 0 {
            let message = format!("{length} bytes are no whole number of items of {size}");
            return Err(PyValueError::new_err(message));
        }
        Ok(items)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Items::Bytes(bytes) => bytes,
            Items::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: contiguous, and the exporter keeps it in place while it is held.
            Items::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes())
            },
        }
    }
}

fn bytes_of(rows: &[Row]) -> &[u8] {
    // SAFETY: rows are plain u32, without padding.
    unsafe { std::slice::from_raw_parts(rows.as_ptr().cast(), size_of_val(rows)) }
}

fn engine_of(engine: i64) -> PyResult<u32> {
    match u32::try_from(engine) {
        Ok(number) if number < ENGINES_MAX => Ok(number),
        _ => Err(PyValueError::new_err(format!(
            "an engine is a number from 0 below {ENGINES_MAX}, not {engine}"
        ))),
    }
}

fn tier_of(tier: i64) -> PyResult<Tier> {
    match tier {
        0 => Ok(Tier::Hbm),
        1 => Ok(Tier::Any),
        _ => Err(PyValueError::new_err(format!("a tier is 0 (HBM) or 1 (any), not {tier}"))),
    }
}

#[pymodule]
mod axiom_native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::PrefixIndex;
    #[pymodule_export]
    use crate::python_fleet::Decider;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("SURFACE", super::SURFACE)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
