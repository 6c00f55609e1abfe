//! What Axiom compiles. Each class has the surface of its Python twin, which is the reference; no
//! rule, metric name or threshold of a decision lives here.

pub mod found;
pub mod holders;
pub mod index;
#[cfg(feature = "python")]
mod python;
mod snapshot;
mod table;
