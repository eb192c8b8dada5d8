//! Random names of sessions, plans and tokens.

/// Returns 256 random bits in hexadecimal digits.
pub(crate) fn hex() -> Result<String, getrandom::Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
