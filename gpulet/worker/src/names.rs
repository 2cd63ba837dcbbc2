//! Names that last as long as the program, made from those that another process says.

use std::sync::{Mutex, PoisonError};

/// Bound on names that this program does not know: a worker is the same program, and hardly has any.
const NEW_NAMES_MAX: usize = 64;

static NEW: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// The same name, for ever. None: there are too many new ones.
pub(crate) fn lasting(name: &str) -> Option<&'static str> {
    if let Some(known) = models::engine::names().find(|known| *known == name) {
        return Some(known);
    }
    let mut new = NEW.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = new.iter().find(|known| **known == name) {
        return Some(known);
    }
    if new.len() >= NEW_NAMES_MAX {
        return None;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    new.push(name);
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_once_and_not_without_end() {
        assert_eq!(lasting("tract"), Some("tract"));
        let first = lasting("cuda-green").unwrap();
        assert!(std::ptr::eq(first, lasting(&String::from("cuda-green")).unwrap()));
        let made = (0..1000).filter(|number| lasting(&format!("name {number}")).is_some()).count();
        assert!(made < NEW_NAMES_MAX);
        assert_eq!(lasting("cuda-green"), Some("cuda-green"));
    }
}
