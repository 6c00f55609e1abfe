//! What rules of Python write, read: the tables of a fleet's life, the figures of an engine.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::columns::{Figures, KV, LATENCY, PREFILL, TERMS, THERMAL};
use crate::engines::WaitRule;
use crate::refuse::{QUARANTINED, SATURATED};
use crate::rules::{NO_RING, Rules};
use crate::text::Cut;

/// Bytes of figures: 16 f64, the seats (i64), the doubts (u8).
pub const FIGURES: usize = 16 * 8 + 8 + 1;

pub(crate) fn rules_of(rules: &Bound<'_, PyAny>) -> PyResult<Rules> {
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

pub(crate) fn figures_of(bytes: &[u8]) -> Figures {
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
