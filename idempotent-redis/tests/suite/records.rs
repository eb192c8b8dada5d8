//! What lies under a key: what the scripts write, byte for byte, and what is refused and left as it is.
mod damaged_values;
mod stored_forms;
