//! Words of commands that users copy into a shell.

/// The word, quoted if a shell would read it otherwise.
pub fn shell_word(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// An option with each of the values, with a space before each.
pub fn flags(option: &str, values: impl Iterator<Item = String>) -> String {
    values.map(|value| format!(" {option} {}", shell_word(&value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_word_back() {
        assert_eq!(shell_word("a/b-c.toml"), "a/b-c.toml");
        assert_eq!(shell_word("it's|"), "'it'\\''s|'");
        let shapes = ["x=3x4", "a b=7"].map(str::to_owned);
        assert_eq!(flags("--shape", shapes.into_iter()), " --shape x=3x4 --shape 'a b=7'");
    }
}
