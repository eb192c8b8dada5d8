//! Stored values: the exact bytes that scripts write, and the values that are rejected unchanged.
mod damaged_values;
mod stored_forms;
