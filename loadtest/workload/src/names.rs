//! Names of models, tenants and devices.

/// Characters of a name.
const NAME_MAX: usize = 200;

/// Names go into addresses, tables and file names.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(sound) {
        return Err(format!("expected a name of at most {NAME_MAX} letters, digits, `-`, `_` and `.`"));
    }
    Ok(())
}
