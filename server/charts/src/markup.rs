//! Text that is safe inside HTML and SVG, and numbers as people read them.

use std::fmt::Write as _;

/// `text` with everything escaped that markup or a quoted attribute would take for its own.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter if letter.is_control() && letter != '\n' => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}

/// A number with thousands separated and as many decimals as it deserves: 5,839 and 41.3 and 0.125.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let decimals = match value.abs() {
        size if size >= 100.0 || size.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    with_separators(&format!("{value:.decimals$}"))
}

/// A share in percent: 99.94 %, and never 100 % for less than all.
pub fn percent(share: f64) -> String {
    if !share.is_finite() {
        return "-".to_owned();
    }
    let rounded = format!("{:.2}", share * 100.0);
    if rounded == "100.00" {
        return if share >= 1.0 { "100 %".to_owned() } else { "99.99 %".to_owned() };
    }
    format!("{rounded} %")
}

fn with_separators(plain: &str) -> String {
    let (sign, plain) = plain.strip_prefix('-').map_or(("", plain), |rest| ("-", rest));
    let (whole, fraction) =
        plain.split_once('.').map_or((plain, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut text = String::from(sign);
    for (position, digit) in whole.chars().enumerate() {
        if position > 0 && (whole.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if let Some(fraction) = fraction {
        let _ = write!(text, ".{fraction}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape(r#"<a href="x">'&'</a>"#), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
        assert_eq!(escape("a\u{0}b"), "a b");
    }

    #[test]
    fn numbers_have_separators_and_fitting_decimals() {
        for (value, text) in [
            (0.0, "0"),
            (0.1254, "0.125"),
            (5.839, "5.84"),
            (25.0, "25"),
            (41.27, "41.3"),
            (583.9, "584"),
            (5_839.2, "5,839"),
            (-1_234_567.0, "-1,234,567"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn less_than_all_is_never_shown_as_all() {
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(0.999_99), "99.99 %");
        assert_eq!(percent(0.5), "50.00 %");
        assert_eq!(percent(f64::NAN), "-");
    }
}
