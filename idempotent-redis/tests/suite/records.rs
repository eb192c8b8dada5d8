//! Stored values: the exact bytes that scripts write, and the values that are rejected unchanged.
mod damaged_values;
mod native_comparison;
mod stored_forms;
