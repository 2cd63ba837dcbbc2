//! The parts that all HTML pages of Tessera share, so that they look alike.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::markup::{escape, number};
use crate::style;

/// A whole HTML file: its title, as plain text, also its heading, and its content, as markup. Follows the reader's
/// light or dark scheme, has no scripts and loads nothing from elsewhere.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{title} - Tessera</title>\n<style>\n{}</style>\n\
         </head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}</main>\n</body>\n</html>\n",
        style::STYLE_SHEET,
        title = escape(title),
    )
}

/// A chart with its heading and caption. `picture` is markup; the others are plain text.
pub fn figure(heading: &str, picture: &str, caption: &str) -> String {
    let (heading, caption) = (escape(heading), escape(caption));
    format!("<h2>{heading}</h2>\n<figure>\n{picture}<figcaption>{caption}</figcaption>\n</figure>\n")
}

/// A paragraph of plain text in a style: `soft` or `verdict`.
pub fn paragraph(class: &str, text: &str) -> String {
    format!("<p class=\"{class}\">{}</p>\n", escape(text))
}

/// A note that the reader needs to interpret the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// What kind of note it is: notes of one kind share this heading.
    pub kind: String,
    /// What it is about, such as a policy; empty for all.
    pub about: String,
    /// The note.
    pub text: String,
}

/// Notes of one kind that are shown without being unfolded.
const NOTES_SHOWN: usize = 3;

/// Notes grouped by their kind, in the order of first appearance, with a count where several share it. Longer groups
/// are folded.
pub fn notes(all: &[Note]) -> String {
    let mut groups: Vec<(&str, Vec<&Note>)> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for note in all {
        let place = *places.entry(&note.kind).or_insert(groups.len());
        match groups.get_mut(place) {
            Some((_, notes)) => notes.push(note),
            None => groups.push((&note.kind, vec![note])),
        }
    }
    let mut text = String::new();
    for (kind, notes) in groups {
        let kind = escape(kind);
        let lines = notes.iter().map(|note| match note.about.as_str() {
            "" => format!("<li>{}</li>\n", escape(&note.text)),
            about => format!("<li><strong>{}</strong>: {}</li>\n", escape(about), escape(&note.text)),
        });
        let list = format!("<ul>\n{}</ul>\n", lines.collect::<String>());
        let count = notes.len();
        let shown = match count {
            1 => format!("<h2>{kind}</h2>\n{list}"),
            2..=NOTES_SHOWN => format!("<h2>{kind} ({count})</h2>\n{list}"),
            _ => format!(
                "<details><summary><strong>{kind}</strong> ({})</summary>\n{list}</details>\n",
                number(count as f64)
            ),
        };
        let _ = write!(text, "<section class=\"notes\">\n{shown}</section>\n");
    }
    text
}

/// A cell of a table: its style (`good`, `bad`, `strong` or none), and its text.
pub type Cell = (&'static str, String);

/// A table with a caption and a header. The first cell of a row is its header. All text is plain. A table that is wider
/// than the window scrolls on its own, also by keyboard.
pub fn table(caption: &str, header: &[&str], rows: impl IntoIterator<Item = Vec<Cell>>) -> String {
    let header: String =
        header.iter().map(|name| format!("<th scope=\"col\">{}</th>", escape(name))).collect();
    let rows = rows.into_iter().map(|row| {
        let cells = row.iter().enumerate().map(|(column, (class, text))| {
            let (open, close) = if column == 0 { ("th scope=\"row\"", "th") } else { ("td", "td") };
            let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
            format!("<{open}{class}>{}</{close}>", escape(text))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    });
    let rows: String = rows.collect();
    let caption = escape(caption);
    format!(
        "<div class=\"wide\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table>\n<caption>{caption}</caption>\n\
         <thead><tr>{header}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
    )
}

/// Cells without a style.
pub fn plain(cells: impl IntoIterator<Item = String>) -> Vec<Cell> {
    cells.into_iter().map(|text| ("", text)).collect()
}

/// The sentence below a list that was shortened from `all` to `shown` entries; empty if it was not.
pub fn more(all: usize, shown: usize, what: &str) -> String {
    match all.checked_sub(shown) {
        Some(more @ 1..) => paragraph("soft", &format!("and {more} more{what}")),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_a_kind_share_a_heading_with_their_number() {
        let note = |kind: &str, about: &str| Note {
            kind: kind.to_owned(),
            about: about.to_owned(),
            text: "x < y".to_owned(),
        };
        let text = notes(&[note("one", "a"), note("two", ""), note("one", "b")]);
        assert!(text.contains("<h2>one (2)</h2>\n<ul>\n<li><strong>a</strong>: x &lt; y</li>"), "{text}");
        assert!(
            text.contains("<h2>two</h2>\n<ul>\n<li>x &lt; y</li>") && !text.contains("<details>"),
            "{text}"
        );
        let many: Vec<Note> = (0..9).map(|_| note("one", "a")).collect();
        assert!(notes(&many).contains("<summary><strong>one</strong> (9)</summary>"));
        assert_eq!(notes(&[]), "");
    }

    #[test]
    fn tables_name_their_rows_and_columns() {
        let text =
            table("Results", &["policy", "n/s"], [vec![("strong", "a<b".to_owned()), ("", "3".to_owned())]]);
        for part in [
            "<caption>Results</caption>",
            "<th scope=\"col\">policy</th>",
            "<th scope=\"row\" class=\"strong\">a&lt;b</th><td>3</td>",
            "role=\"region\" aria-label=\"Results\" tabindex=\"0\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
