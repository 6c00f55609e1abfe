//! What Axiom compiles. Each class has the surface of its Python twin, which is the reference; no
//! rule, metric name or threshold of a decision lives here.

pub mod adapters;
pub mod decide;
pub mod engines;
pub mod fleet;
pub mod found;
pub mod holders;
pub mod index;
mod memory;
pub mod packed;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_fleet;
mod search;
mod shards;
mod snapshot;
mod table;
pub mod text;
