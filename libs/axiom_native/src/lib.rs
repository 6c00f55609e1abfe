//! What Axiom compiles. Each class has the surface of its Python twin, which is the reference; no
//! rule, metric name or threshold of a decision lives here.

pub mod adapters;
pub mod bookings;
pub mod columns;
mod costs;
pub mod decide;
pub mod engines;
pub mod fleet;
pub mod found;
pub mod holders;
pub mod index;
mod memory;
pub mod numbered;
pub mod packed;
mod pick;
pub mod predict;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_fleet;
#[cfg(feature = "python")]
mod python_query;
#[cfg(feature = "python")]
mod python_rules;
pub mod refuse;
pub mod rules;
mod search;
mod shards;
mod snapshot;
mod table;
pub mod text;
