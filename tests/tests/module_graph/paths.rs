//! The paths that an item's code names, those in the arguments of macros included.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree};

use super::{Use, only_for_tests};

/// Paths found so far.
#[derive(Default)]
pub struct Paths {
    /// As they are written.
    pub found: Vec<Use>,
}

impl Paths {
    /// Takes in an item.
    pub fn read(&mut self, item: &Item) {
        self.visit_item(item);
    }

    fn tree(&mut self, tree: &UseTree, before: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(&path.tree, before);
                before.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(tree, before)),
            UseTree::Name(syn::UseName { ident }) | UseTree::Rename(syn::UseRename { ident, .. }) => {
                let segments = before.iter().cloned().chain([ident.to_string()]).collect();
                self.found.push(Use { segments, line: ident.span().start().line, declared: true });
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.spans[0].start().line;
                self.found.push(Use { segments: before.clone(), line, declared: true });
            }
        }
    }

    /// Names joined by `::` in the tokens of a macro, which may stand for anything.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut open: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        let mut dotted = false;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons < 2 {
                        self.close(&mut open, line);
                    }
                    if open.is_empty() {
                        line = ident.span().start().line;
                    }
                    if !(dotted && open.is_empty()) {
                        open.push(ident.to_string());
                    }
                    (colons, dotted) = (0, false);
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => {
                    colons += 1;
                    if colons > 2 {
                        self.close(&mut open, line);
                    }
                }
                other => {
                    self.close(&mut open, line);
                    dotted = matches!(&other, TokenTree::Punct(mark) if mark.as_char() == '.');
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.close(&mut open, line);
    }

    fn close(&mut self, open: &mut Vec<String>, line: usize) {
        let segments = std::mem::take(open);
        if !segments.is_empty() {
            self.found.push(Use { segments, line, declared: false });
        }
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        if !only_for_tests(super::attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes: &[Attribute] = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            syn::ImplItem::Macro(item) => &item.attrs,
            _ => &[],
        };
        if !only_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.tree(&item.tree, &mut Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        // A path that begins with `::` names another crate.
        if path.leading_colon.is_none()
            && let Some(first) = path.segments.first()
        {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            self.found.push(Use { segments, line: first.ident.span().start().line, declared: false });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}
