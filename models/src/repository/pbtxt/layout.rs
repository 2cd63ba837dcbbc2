//! Where each field stands in the text of a `config.pbtxt`, and names that are not fields.
//!
//! The protobuf parser stops at the first mistake and forgets positions. This scan knows only names, braces and lists. It
//! never fails: text that it cannot follow is left to the parser.

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// A position in a text, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub line: usize,
    /// In characters.
    pub column: usize,
}

impl Position {
    /// The position of a byte.
    pub(super) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

/// Most unknown names that are listed.
const UNKNOWN_MAX: usize = 50;

/// A name that is not a field of its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnknownName {
    /// Path of the message that has it, with the name.
    pub path: String,
    pub name: String,
    pub position: Position,
    /// Names that the message has.
    pub expected: Vec<String>,
}

/// The fields of a text in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Paths such as `instance_group[1].kind`, with the index of each element of a repeated message.
    fields: Vec<(String, Position)>,
    pub unknown: Vec<UnknownName>,
}

impl Layout {
    /// Position of a path, or of the nearest message around it that the text has.
    pub(super) fn position(&self, path: &str) -> Option<Position> {
        let exact = |path: &str| self.fields.iter().find(|(known, _)| known == path).map(|(_, at)| *at);
        let mut path = path;
        loop {
            if let Some(position) = exact(path) {
                return Some(position);
            }
            path = path.rsplit_once('.')?.0;
        }
    }

    /// Whether the text sets a field.
    pub(super) fn has(&self, path: &str) -> bool {
        self.fields.iter().any(|(known, _)| known == path)
    }

    pub(super) fn of(text: &str, root: MessageDescriptor) -> Self {
        let mut scan = Scan {
            text,
            layout: Self::default(),
            open: vec![Open::Message(Message::new(Some(root), String::new()))],
        };
        for (offset, token) in tokens(text) {
            scan.read(offset, token);
        }
        scan.layout
    }
}

/// A field whose value is being read.
#[derive(Clone)]
struct Field {
    descriptor: Option<FieldDescriptor>,
    path: String,
}

struct Message {
    /// `None` inside a field that is not known: nothing is said about its content.
    descriptor: Option<MessageDescriptor>,
    path: String,
    /// Elements so far of each repeated field of messages.
    counts: Vec<(String, usize)>,
    field: Option<Field>,
}

impl Message {
    fn new(descriptor: Option<MessageDescriptor>, path: String) -> Self {
        Self { descriptor, path, counts: Vec::new(), field: None }
    }
}

enum Open {
    Message(Message),
    List,
}

struct Scan<'a> {
    text: &'a str,
    layout: Layout,
    open: Vec<Open>,
}

impl Scan<'_> {
    fn read(&mut self, offset: usize, token: Token<'_>) {
        let in_list = matches!(self.open.last(), Some(Open::List));
        match token {
            Token::Word(word) if !in_list => self.word(offset, word),
            Token::OpenMessage => {
                if let Some(message) = self.element(offset) {
                    self.open.push(Open::Message(message));
                }
            }
            Token::OpenList => self.open.push(Open::List),
            Token::Close => {
                // The outermost message is the file.
                if self.open.len() > 1 {
                    self.open.pop();
                }
                if !matches!(self.open.last(), Some(Open::List)) {
                    self.value_ends();
                }
            }
            Token::Value if !in_list => self.value_ends(),
            Token::Word(_) | Token::Value => {}
        }
    }

    fn message(&mut self) -> Option<&mut Message> {
        self.open.iter_mut().rev().find_map(|open| match open {
            Open::Message(message) => Some(message),
            Open::List => None,
        })
    }

    fn value_ends(&mut self) {
        if let Some(message) = self.message() {
            message.field = None;
        }
    }

    /// A name, or the value of the name before it.
    fn word(&mut self, offset: usize, word: &str) {
        let position = Position::of(self.text, offset);
        let Some(message) = self.message() else { return };
        if message.field.take().is_some() {
            return;
        }
        if message.descriptor.is_none() {
            // No path: those of deeply nested text would grow with the square of its length.
            message.field = Some(Field { descriptor: None, path: String::new() });
            return;
        }
        let entry = message.descriptor.as_ref().is_some_and(MessageDescriptor::is_map_entry);
        let path = match (entry, message.path.as_str()) {
            (true, path) => path.to_owned(),
            (false, "") => word.to_owned(),
            (false, path) => format!("{path}.{word}"),
        };
        let descriptor = message.descriptor.as_ref().and_then(|known| known.get_field_by_name(word));
        let unknown = match (&message.descriptor, &descriptor) {
            (Some(known), None) => Some(known.fields().map(|field| field.name().to_owned()).collect()),
            _ => None,
        };
        message.field = Some(Field { descriptor, path: path.clone() });
        if let Some(expected) = unknown {
            if self.layout.unknown.len() >= UNKNOWN_MAX {
                return;
            }
            let name = word.to_owned();
            self.layout.unknown.push(UnknownName { path, name, position, expected });
        } else if !entry {
            self.layout.fields.push((path, position));
        }
    }

    /// The message that starts here, if a field has been named for it.
    fn element(&mut self, offset: usize) -> Option<Message> {
        let position_of_element = Position::of(self.text, offset);
        let message = self.message()?;
        let Field { descriptor, path } = message.field.clone()?;
        let inner = descriptor.as_ref().and_then(|field| match field.kind() {
            Kind::Message(inner) => Some(inner),
            _ => None,
        });
        if !descriptor.is_some_and(|field| field.is_list()) {
            return Some(Message::new(inner, path));
        }
        let position = message.counts.iter().position(|(counted, _)| *counted == path);
        let index = match position.and_then(|position| message.counts.get_mut(position)) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                message.counts.push((path.clone(), 0));
                0
            }
        };
        let path = format!("{path}[{index}]");
        self.layout.fields.push((path.clone(), position_of_element));
        Some(Message::new(inner, path))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A name, a number or a word such as `true`.
    Word(&'a str),
    /// A string.
    Value,
    OpenMessage,
    OpenList,
    Close,
}

fn tokens(text: &str) -> impl Iterator<Item = (usize, Token<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(at..)?;
            let start = at;
            let first = rest.chars().next()?;
            let is_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
            let (length, token) = match first {
                '#' => (rest.find('\n').unwrap_or(rest.len()), None),
                '"' | '\'' => (string(rest, first), Some(Token::Value)),
                '{' | '<' => (1, Some(Token::OpenMessage)),
                '[' => (1, Some(Token::OpenList)),
                '}' | '>' | ']' => (1, Some(Token::Close)),
                c if is_word(c) => {
                    let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                    (end, rest.get(..end).map(Token::Word))
                }
                c => (c.len_utf8(), None),
            };
            at += length;
            if let Some(token) = token {
                return Some((start, token));
            }
        }
    })
}

/// Length of the string that a text starts with, including its quotes.
fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(text: &str) -> Layout {
        Layout::of(text, super::super::descriptor().unwrap())
    }

    fn at(layout: &Layout, path: &str) -> Option<(usize, usize)> {
        layout.position(path).map(|at| (at.line, at.column))
    }

    #[test]
    fn fields_are_found_in_every_notation() {
        let text = r#"# name: "x"
name: "{ name: 'm' }" max_batch_size: 8
input [
  { name: "a", dims: [ 1, 2 ] },
  { name: "b" data_type: TYPE_FP32 }
]
instance_group { count: 1 } instance_group < kind: KIND_CPU >
parameters { key: "k" value: { string_value: "[" } }
model_warmup [{ inputs { key: "i" value { dims: -1 zero_data: true } } }]
"#;
        let layout = layout(text);
        assert_eq!(layout.unknown, []);
        for (path, expected) in [
            ("name", (2, 1)),
            ("max_batch_size", (2, 23)),
            ("input[0].dims", (4, 16)),
            ("input[1].name", (5, 5)),
            ("input[1].data_type", (5, 15)),
            ("instance_group[0].count", (7, 18)),
            ("instance_group[1].kind", (7, 46)),
            ("model_warmup[0].inputs.zero_data", (9, 52)),
            ("input[1].reshape.shape", (5, 3)),
        ] {
            assert_eq!(at(&layout, path), Some(expected), "{path}");
        }
        assert!(layout.has("input[0].dims") && !layout.has("input[1].dims"));
    }

    #[test]
    fn every_unknown_name_is_listed_with_what_its_message_has() {
        let found =
            layout("max_batchsize: 1\ninput { nam: \"x\" dims: 1 }\nfoo { bar: 1 baz { } }\nname: 'm'")
                .unknown;
        let named: Vec<_> =
            found.iter().map(|unknown| (unknown.path.as_str(), unknown.position.line)).collect();
        assert_eq!(named, [("max_batchsize", 1), ("input[0].nam", 2), ("foo", 3)]);
        assert!(found[1].expected.contains(&"name".to_owned()), "{:?}", found[1].expected);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z_:{}\\[\\]<>\"'#,0-9é\\\\ \\n]{0,200}") {
            let _ = layout(&text);
        }
    }
}
