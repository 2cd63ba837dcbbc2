//! Running library code that may panic.

use std::cell::Cell;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static FILTER: Once = Once::new();

/// Bound on a message: engines quote whole constants.
const MESSAGE_CHARS_MAX: usize = 600;

/// Runs `work` and converts a panic into an error. Engines panic on graphs and shapes that their authors did not
/// foresee. A request must not end a lane's thread or fill the log with backtraces, so the message goes into the error
/// and the process's panic hook is not called.
pub(super) fn guarded<T, E: Display>(work: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    FILTER.call_once(|| {
        let other = take_hook();
        set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                other(panic);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    match outcome {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(one_line(&format!("{error:#}"))),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(one_line(&format!("panicked: {said}")))
        }
    }
}

/// A message without line breaks and of bounded length.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_become_errors() {
        assert_eq!(guarded(|| Ok::<_, String>(1)), Ok(1));
        assert_eq!(guarded(|| Err::<u8, _>("a\n b")), Err("a b".to_owned()));
        let index = std::hint::black_box(3);
        let panicked = guarded(|| Ok::<_, String>([1, 2][index]));
        assert!(panicked.unwrap_err().starts_with("panicked: index out of bounds"));
    }
}
