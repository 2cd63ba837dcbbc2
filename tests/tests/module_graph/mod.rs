//! The modules of one crate as a graph of imports, read from source with `syn`.

mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use paths::Paths;
use syn::{Attribute, Item, UseTree};

/// A module: a file, or a block of one.
struct Module {
    /// `a::b`, empty for the root.
    name: String,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// The module that is the file in which this one stands: itself, unless it is a block.
    file: usize,
    /// Names that it defines.
    items: BTreeSet<String>,
    /// Names that it imports, with what they stand for.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: Vec<Use>,
}

/// A path as it is written.
pub struct Use {
    segments: Vec<String>,
    line: usize,
    /// Whether it is a `use` declaration, or an expression or type.
    declared: bool,
}

/// All modules of a crate; the root is the first.
pub struct Modules {
    all: Vec<Module>,
}

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// A module.
    Module(usize),
    /// An item, by the module that defines it.
    Item(usize, String),
}

/// Steps from re-export to re-export.
const HOPS_MAX: usize = 16;

fn only_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("cfg")).any(|attribute| {
        let condition = attribute.meta.require_list().map(|list| list.tokens.to_string()).unwrap_or_default();
        condition == "test" || condition.starts_with("all (test") || condition.starts_with("all(test")
    })
}

fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// The file of `mod name;` in a file, whose own modules lie in `folder`.
fn file_of(folder: &Path, name: &str, attributes: &[Attribute]) -> Option<PathBuf> {
    let given = attributes.iter().find(|attribute| attribute.path().is_ident("path"));
    if let Some(syn::Expr::Lit(literal)) =
        given.and_then(|attribute| Some(attribute.meta.require_name_value().ok()?.value.clone()))
        && let syn::Lit::Str(path) = literal.lit
    {
        return Some(folder.join(path.value()));
    }
    let places = [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")];
    places.into_iter().find(|place| place.is_file())
}

impl Modules {
    /// Reads the crate whose root is this file.
    pub fn read(root: &Path) -> Self {
        let mut modules = Self { all: Vec::new() };
        let folder = root.parent().unwrap();
        modules.read_file(root, folder, String::new(), None);
        modules
    }

    fn read_file(&mut self, path: &Path, folder: &Path, name: String, parent: Option<usize>) -> usize {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let number = self.add(name, parent, None);
        self.read_items(number, &parsed.items, folder);
        number
    }

    fn add(&mut self, name: String, parent: Option<usize>, file: Option<usize>) -> usize {
        let number = self.all.len();
        self.all.push(Module {
            name,
            parent,
            children: BTreeMap::new(),
            file: file.unwrap_or(number),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            paths: Vec::new(),
        });
        number
    }

    fn read_items(&mut self, number: usize, items: &[Item], folder: &Path) {
        for item in items.iter().filter(|item| !only_for_tests(attributes_of(item))) {
            match item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let above = &self.all[number].name;
                    let full = if above.is_empty() { name.clone() } else { format!("{above}::{name}") };
                    let folder_within = folder.join(&name);
                    let child = match &module.content {
                        Some((_, items)) => {
                            let child = self.add(full, Some(number), Some(self.all[number].file));
                            self.read_items(child, items, &folder_within);
                            child
                        }
                        None => match file_of(folder, &name, &module.attrs) {
                            Some(path) => self.read_file(&path, &folder_within, full, Some(number)),
                            None => panic!("module {full}: no file in {}", folder.display()),
                        },
                    };
                    self.all[number].children.insert(name, child);
                }
                Item::Use(declared) => self.import(number, &declared.tree, &mut Vec::new()),
                other => {
                    if let Some(name) = name_of(other) {
                        self.all[number].items.insert(name);
                    }
                    let mut found = Paths::default();
                    found.read(other);
                    self.all[number].paths.extend(found.found);
                }
            }
        }
    }

    /// Takes in a tree of `use`.
    fn import(&mut self, number: usize, tree: &UseTree, before: &mut Vec<String>) {
        let mut named = |name: String, given: String, line: usize| {
            let mut segments = before.clone();
            if name != "self" {
                segments.push(name);
            }
            let module = &mut self.all[number];
            module.imports.insert(given, segments.clone());
            module.paths.push(Use { segments, line, declared: true });
        };
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(number, &path.tree, before);
                before.pop();
            }
            UseTree::Name(name) => {
                let given = match before.last().filter(|_| name.ident == "self") {
                    Some(last) => last.clone(),
                    None => name.ident.to_string(),
                };
                named(name.ident.to_string(), given, name.ident.span().start().line);
            }
            UseTree::Rename(name) => {
                // Two traits that are imported as `_` do not replace each other.
                let given = match name.rename.to_string() {
                    unnamed if unnamed == "_" => format!("_ {}", name.ident),
                    given => given,
                };
                named(name.ident.to_string(), given, name.ident.span().start().line);
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                self.all[number].globs.push(before.clone());
                self.all[number].paths.push(Use { segments: before.clone(), line, declared: true });
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(number, tree, before)),
        }
    }

    /// What a path in a module leads to; none for other crates, locals, and built-in names.
    fn resolve(&self, from: usize, segments: &[String], hops: usize) -> Option<Found> {
        let (first, mut rest) = segments.split_first()?;
        if hops > HOPS_MAX {
            return None;
        }
        let mut at = match first.as_str() {
            "crate" | "$crate" => 0,
            "self" => from,
            "super" => self.all[from].parent?,
            _ => return self.member(from, segments, hops),
        };
        while let Some((next, after)) = rest.split_first().filter(|(next, _)| *next == "super") {
            debug_assert_eq!(next, "super");
            at = self.all[at].parent?;
            rest = after;
        }
        if rest.is_empty() { Some(Found::Module(at)) } else { self.member(at, rest, hops) }
    }

    /// The same for a path whose first segment is a name in a module.
    fn member(&self, at: usize, segments: &[String], hops: usize) -> Option<Found> {
        let (first, rest) = segments.split_first()?;
        let module = &self.all[at];
        if let Some(child) = module.children.get(first) {
            return if rest.is_empty() {
                Some(Found::Module(*child))
            } else {
                self.member(*child, rest, hops)
            };
        }
        if module.items.contains(first) {
            return Some(Found::Item(at, first.clone()));
        }
        if let Some(target) = module.imports.get(first) {
            if target.first() == Some(first) && target.len() == 1 {
                return None;
            }
            let whole: Vec<String> = target.iter().chain(rest).cloned().collect();
            return self.resolve(at, &whole, hops + 1);
        }
        module.globs.iter().find_map(|glob| {
            let Some(Found::Module(through)) = self.resolve(at, glob, hops + 1) else { return None };
            self.member(through, segments, hops + 1)
        })
    }

    /// The ancestors of a module's file, nearest first, itself included.
    fn line_of(&self, number: usize) -> Vec<usize> {
        let files = std::iter::successors(Some(self.all[number].file), |&file| {
            self.all[file].parent.map(|parent| self.all[parent].file)
        });
        files.collect()
    }

    /// Imports between siblings: from, to, and what ties them, with lines.
    fn ties(&self) -> BTreeMap<(usize, usize), BTreeMap<String, BTreeSet<usize>>> {
        let mut ties: BTreeMap<(usize, usize), BTreeMap<String, BTreeSet<usize>>> = BTreeMap::new();
        for (number, module) in self.all.iter().enumerate() {
            for used in &module.paths {
                let Some(found) = self.resolve(number, &used.segments, 0) else { continue };
                let (target, item) = match &found {
                    // A lone name may be a local variable that is called as a module is.
                    Found::Module(_) if !used.declared && used.segments.len() == 1 => continue,
                    Found::Module(target) => (*target, String::new()),
                    Found::Item(target, item) => (*target, format!("::{item}")),
                };
                let (own, other) = (self.line_of(number), self.line_of(target));
                if own.contains(&other[0]) || other.contains(&own[0]) {
                    continue;
                }
                // Below the nearest common ancestor.
                let shared = own.iter().find(|file| other.contains(file)).copied();
                let below = |line: &[usize]| {
                    line.iter().copied().take_while(|file| Some(*file) != shared).last().unwrap_or(0)
                };
                let what = format!("{} uses {}{item}", self.all[own[0]].name, self.all[other[0]].name);
                let items = ties.entry((below(&own), below(&other))).or_default();
                items.entry(what).or_default().insert(used.line);
            }
        }
        ties
    }

    /// Siblings that form circles, in words.
    pub fn circles(&self) -> Vec<String> {
        let ties = self.ties();
        let reach = |from: usize| {
            let mut reached = BTreeSet::new();
            let mut open = vec![from];
            while let Some(at) = open.pop() {
                for &(_, to) in ties.keys().filter(|(from, _)| *from == at) {
                    if reached.insert(to) {
                        open.push(to);
                    }
                }
            }
            reached
        };
        let reached: Vec<BTreeSet<usize>> = (0..self.all.len()).map(reach).collect();
        let mut seen = BTreeSet::new();
        let mut circles = Vec::new();
        for number in 0..self.all.len() {
            let circle: BTreeSet<usize> =
                reached[number].iter().copied().filter(|other| reached[*other].contains(&number)).collect();
            if circle.is_empty() || !seen.insert(circle.clone()) {
                continue;
            }
            let mut text = String::new();
            for ((from, to), items) in &ties {
                if circle.contains(from) && circle.contains(to) {
                    text.push_str(&format!("  {} -> {}\n", self.all[*from].name, self.all[*to].name));
                    for (item, lines) in items {
                        text.push_str(&format!("      {item}, line {lines:?}\n"));
                    }
                }
            }
            circles.push(text);
        }
        circles
    }
}
