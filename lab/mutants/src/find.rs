//! Finds the mutants of a source file.
//!
//! Arguments of macros, patterns, types, attributes, constants, `const fn`, tests and code for other processors
//! are not mutated: such code cannot check at run time whether a mutant is on, or does not run here. Neither are
//! prefetches, on which no result depends.

use std::ops::Range;

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, Block, Expr, Lit, Local, Pat, Stmt, UnOp};

use crate::mutant::{Kind, Mutant, on_one_line};

/// Longer statements are not swapped: each swap copies its neighbours, and copies cost compile time.
const SWAPPED_BYTES_MAX: usize = 240;

/// A piece of source that is rewritten.
#[derive(Debug)]
pub struct Site {
    pub range: Range<usize>,
    pub form: Form,
}

/// How a site is rewritten.
#[derive(Debug)]
pub enum Form {
    /// Replaces the expression or the statements by one of these.
    Instead { statements: bool, variants: Vec<(u32, String)> },
    /// Makes the condition false if the mutant is on. A chain with `let` takes no parentheses.
    Never { id: u32, chain: bool },
    /// Skips the statement if the mutant is on.
    Skipped { id: u32 },
    /// Drops the name after this `let`.
    Dropped { id: u32, name: String },
}

/// The sites of a file, outer ones before inner ones.
#[derive(Debug)]
pub struct File {
    pub path: String,
    pub source: String,
    pub sites: Vec<Site>,
}

/// Finds the mutants of a file and appends them to `mutants`: their numbers are their indices there.
pub fn find(path: &str, source: String, mutants: &mut Vec<Mutant>) -> Result<File, String> {
    let parsed = syn::parse_file(&source).map_err(|error| format!("{path}: {error}"))?;
    let mut finder = Finder { path, source: &source, mutants, sites: Vec::new() };
    finder.visit_file(&parsed);
    let mut sites = finder.sites;
    // Stable: of two equally long sites the outer one was found first.
    sites.sort_by_key(|site| (site.range.start, std::cmp::Reverse(site.range.end)));
    Ok(File { path: path.to_owned(), source, sites })
}

struct Finder<'a> {
    path: &'a str,
    source: &'a str,
    mutants: &'a mut Vec<Mutant>,
    sites: Vec<Site>,
}

impl Finder<'_> {
    fn code(&self, node: &impl Spanned) -> &str {
        &self.source[node.span().byte_range()]
    }

    fn add(&mut self, span: Span, kind: Kind, before: &str, after: &str) -> u32 {
        let start = span.start();
        let id = self.mutants.len() as u32;
        self.mutants.push(Mutant {
            id,
            file: self.path.to_owned(),
            line: start.line,
            column: start.column + 1,
            kind,
            text: self.source.lines().nth(start.line - 1).unwrap_or_default().trim().to_owned(),
            before: on_one_line(before),
            after: on_one_line(after),
        });
        id
    }

    /// Adds mutants that replace a node by one of these: the printed text, and the written code.
    fn instead(&mut self, node: &impl Spanned, at: Span, kind: Kind, variants: &[(String, String)]) {
        let before = self.code(node).to_owned();
        let add = |(shown, code): &(String, String)| (self.add(at, kind, &before, shown), code.clone());
        let variants = variants.iter().map(add).collect();
        self.sites.push(Site {
            range: node.span().byte_range(),
            form: Form::Instead { statements: false, variants },
        });
    }

    fn binary(&mut self, node: &syn::ExprBinary) {
        let (left, right) = (self.code(&node.left).to_owned(), self.code(&node.right).to_owned());
        let at = node.op.span();
        let with = |op: &str| (format!("{left} {op} {right}"), format!("({left}) {op} ({right})"));
        let (kind, variants) = match node.op {
            BinOp::Lt(_) => (Kind::Comparison, vec![with("<=")]),
            BinOp::Le(_) => (Kind::Comparison, vec![with("<")]),
            BinOp::Gt(_) => (Kind::Comparison, vec![with(">=")]),
            BinOp::Ge(_) => (Kind::Comparison, vec![with(">")]),
            BinOp::Eq(_) => (Kind::Comparison, vec![with("!=")]),
            BinOp::Ne(_) => (Kind::Comparison, vec![with("==")]),
            BinOp::And(_) if !has_let(&node.left) && !has_let(&node.right) => {
                (Kind::Junction, vec![with("||")])
            }
            BinOp::Or(_) => (Kind::Junction, vec![with("&&")]),
            BinOp::Add(_) | BinOp::Sub(_) if right == "1" => {
                let op = if matches!(node.op, BinOp::Add(_)) { '+' } else { '-' };
                let by_two = (format!("{left} {op} 2"), format!("({left}) {op} 2"));
                (Kind::OffByOne, vec![(left.clone(), format!("({left})")), by_two])
            }
            _ => return,
        };
        self.instead(node, at, kind, &variants);
    }

    /// Adds mutants of a range whose end moves by one, or whose start increases by one.
    fn range(&mut self, range: &syn::ExprRange) {
        let whole = self.code(range).to_owned();
        let from = range.span().byte_range().start;
        for (bound, ops) in [(&range.start, &["+"][..]), (&range.end, &["+", "-"])] {
            let Some(bound) = bound else { continue };
            let code = self.code(bound).to_owned();
            let place = bound.span().byte_range();
            let (before, after) = (&whole[..place.start - from], &whole[place.end - from..]);
            let variants: Vec<_> = ops
                .iter()
                .map(|op| (format!("{before}{code} {op} 1{after}"), format!("({code}) {op} 1")))
                .collect();
            self.instead(bound, bound.span(), Kind::Bound, &variants);
        }
    }

    fn condition(&mut self, condition: &Expr, kind: Kind) {
        let code = self.code(condition).to_owned();
        let id = self.add(condition.span(), kind, &code, "false");
        let form = Form::Never { id, chain: has_let(condition) };
        self.sites.push(Site { range: condition.span().byte_range(), form });
    }

    /// Adds mutants that omit statements or swap them with their neighbours. With `unit` the last one has no
    /// value, even without a semicolon.
    fn block(&mut self, block: &Block, unit: bool) {
        let last = block.stmts.len().wrapping_sub(1);
        let removable = |at: usize, stmt: &Stmt| effect(stmt, unit || at != last);
        for (at, stmt) in block.stmts.iter().enumerate() {
            if let Stmt::Local(local) = stmt
                && let Some(name) = unread(local)
            {
                let id = self.add(local.span(), Kind::Guard, self.code(local).to_owned().as_str(), &name);
                let form = Form::Dropped { id, name };
                self.sites.push(Site { range: local.span().byte_range(), form });
            }
            if removable(at, stmt) != Effect::Plain || is_condition(stmt) {
                continue;
            }
            let code = self.code(stmt).to_owned();
            let id = self.add(stmt.span(), Kind::Deletion, &code, "");
            self.sites.push(Site { range: stmt.span().byte_range(), form: Form::Skipped { id } });
        }
        let mut run = 0..0;
        for (at, stmt) in block.stmts.iter().enumerate() {
            let short = stmt.span().byte_range().len() <= SWAPPED_BYTES_MAX;
            if short && removable(at, stmt) == Effect::Plain {
                run = if run.end == at { run.start..at + 1 } else { at..at + 1 };
            }
            if run.len() > 1 && (run.end != at + 1 || at == last) {
                self.swaps(&block.stmts[run.clone()]);
                run = 0..0;
            }
        }
    }

    /// Adds mutants that swap two adjacent statements of a run.
    fn swaps(&mut self, run: &[Stmt]) {
        let codes: Vec<String> = run.iter().map(|stmt| format!("{};", self.code(stmt))).collect();
        let mut variants = Vec::new();
        for at in 1..run.len() {
            let mut order: Vec<&str> = codes.iter().map(String::as_str).collect();
            order.swap(at - 1, at);
            let before = format!("{} {}", codes[at - 1], codes[at]).replace(";;", ";");
            let after = format!("{} {}", codes[at], codes[at - 1]).replace(";;", ";");
            let id = self.add(run[at - 1].span(), Kind::Swap, &before, &after);
            variants.push((id, order.join("\n")));
        }
        let range = run[0].span().byte_range().start..run[run.len() - 1].span().byte_range().end;
        self.sites.push(Site { range, form: Form::Instead { statements: true, variants } });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        match item {
            syn::Item::Const(_) | syn::Item::Static(_) | syn::Item::Enum(_) | syn::Item::Struct(_) => {}
            syn::Item::Fn(f) if !runs(&f.attrs, &f.sig) => {}
            syn::Item::Mod(module) if is_elsewhere(&module.attrs) => {}
            syn::Item::Impl(item) if is_elsewhere(&item.attrs) => {}
            syn::Item::Fn(f) => self.function(&f.sig, &f.block),
            item => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        if let syn::ImplItem::Fn(f) = item
            && runs(&f.attrs, &f.sig)
        {
            self.function(&f.sig, &f.block);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast syn::TraitItem) {
        if let syn::TraitItem::Fn(f) = item
            && let Some(block) = &f.default
            && runs(&f.attrs, &f.sig)
        {
            self.function(&f.sig, block);
        }
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.block(block, false);
        visit::visit_block(self, block);
    }

    fn visit_expr(&mut self, expr: &'ast Expr) {
        match expr {
            Expr::Const(_) => return,
            expr if only_prefetches(expr) => return,
            Expr::Repeat(repeat) => return self.visit_expr(&repeat.expr),
            Expr::Binary(binary) => self.binary(binary),
            Expr::Range(range) => self.range(range),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let operand = self.code(&unary.expr).to_owned();
                let code = format!("({operand})");
                self.instead(unary, unary.op.span(), Kind::Negation, &[(operand, code)]);
            }
            Expr::Lit(literal) => {
                if let Lit::Bool(bool) = &literal.lit {
                    let other = (!bool.value).to_string();
                    self.instead(literal, literal.span(), Kind::Literal, &[(other.clone(), other)]);
                }
            }
            Expr::If(branch) => {
                if diverges(&branch.then_branch) {
                    self.condition(&branch.cond, Kind::Check);
                } else if branch.else_branch.is_none() {
                    self.condition(&branch.cond, Kind::Branch);
                }
                if branch.else_branch.is_none() {
                    self.visit_expr(&branch.cond);
                    self.block(&branch.then_branch, true);
                    return visit::visit_block(self, &branch.then_branch);
                }
            }
            Expr::While(repeated) => {
                self.condition(&repeated.cond, Kind::Branch);
                self.visit_expr(&repeated.cond);
                return self.unit_block(&repeated.body);
            }
            Expr::ForLoop(repeated) => {
                self.visit_expr(&repeated.expr);
                return self.unit_block(&repeated.body);
            }
            Expr::Loop(repeated) => return self.unit_block(&repeated.body),
            _ => {}
        }
        visit::visit_expr(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some((_, guard)) = &arm.guard {
            self.condition(guard, Kind::Branch);
        }
        visit::visit_arm(self, arm);
    }

    fn visit_pat(&mut self, _: &'ast Pat) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
}

impl Finder<'_> {
    fn function(&mut self, signature: &syn::Signature, block: &Block) {
        self.block(block, matches!(signature.output, syn::ReturnType::Default));
        visit::visit_block(self, block);
    }

    fn unit_block(&mut self, block: &Block) {
        self.block(block, true);
        visit::visit_block(self, block);
    }
}

/// Returns whether code with these attributes is not part of the libraries as built here.
fn is_elsewhere(attributes: &[Attribute]) -> bool {
    let elsewhere = ["test", "loom", "aarch64", "not", "debug_assertions"];
    let of = |attribute: &Attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            elsewhere.iter().any(|word| condition.contains(word))
        }
        meta => meta.path().is_ident("test"),
    };
    attributes.iter().any(of)
}

fn runs(attributes: &[Attribute], signature: &syn::Signature) -> bool {
    signature.constness.is_none() && !is_elsewhere(attributes)
}

/// Returns whether a condition is a chain with `let`.
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(both) if matches!(both.op, BinOp::And(_)) => has_let(&both.left) || has_let(&both.right),
        _ => false,
    }
}

/// Returns whether a block ends in a jump or an error.
fn diverges(block: &Block) -> bool {
    let Some(Stmt::Expr(last, _)) = block.stmts.last() else { return false };
    match last {
        Expr::Call(call) => matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Err")),
        last => is_jump(last),
    }
}

fn is_jump(expr: &Expr) -> bool {
    matches!(expr, Expr::Return(_) | Expr::Break(_) | Expr::Continue(_))
}

/// Returns whether this is a prefetch hint, on which no result depends.
fn is_prefetch(expr: &Expr) -> bool {
    let name = match expr {
        Expr::MethodCall(call) => Some(&call.method),
        Expr::Call(call) => match &*call.func {
            Expr::Path(path) => path.path.segments.last().map(|segment| &segment.ident),
            _ => None,
        },
        _ => None,
    };
    name.is_some_and(|name| name.to_string().contains("prefetch"))
}

/// Returns whether an expression only prefetches, possibly in a loop or conditionally.
fn only_prefetches(expr: &Expr) -> bool {
    match expr {
        Expr::If(branch) => branch.else_branch.is_none() && block_only_prefetches(&branch.then_branch),
        Expr::ForLoop(repeated) => block_only_prefetches(&repeated.body),
        Expr::Block(block) => block_only_prefetches(&block.block),
        Expr::MethodCall(call) if call.method == "for_each" => {
            matches!(call.args.first(), Some(Expr::Closure(closure)) if only_prefetches(&closure.body))
        }
        _ => is_prefetch(expr),
    }
}

fn block_only_prefetches(block: &Block) -> bool {
    let (last, others) = match block.stmts.split_last() {
        Some((Stmt::Expr(last, _), others)) => (last, others),
        _ => return false,
    };
    only_prefetches(last)
        && others.iter().all(|stmt| match stmt {
            Stmt::Expr(expr, _) => only_prefetches(expr),
            Stmt::Local(_) => true,
            Stmt::Item(_) | Stmt::Macro(_) => false,
        })
}

#[derive(PartialEq)]
enum Effect {
    /// A statement that binds no name and has no value, so that it can be omitted.
    Plain,
    Other,
}

/// Returns the kind of a statement; without `unit` an expression without semicolon is a value.
fn effect(stmt: &Stmt, unit: bool) -> Effect {
    let plain = match stmt {
        Stmt::Expr(expr, semicolon) => {
            let opaque = matches!(expr, Expr::Macro(_) | Expr::Const(_)) || only_prefetches(expr);
            (semicolon.is_some() || unit) && !is_jump(expr) && !opaque
        }
        Stmt::Local(local) => {
            let acts = |init: &syn::LocalInit| init.diverge.is_none() && !matches!(*init.expr, Expr::Path(_));
            local.init.as_ref().is_some_and(acts) && !binds(&local.pat)
        }
        Stmt::Item(_) | Stmt::Macro(_) => false,
    };
    if plain { Effect::Plain } else { Effect::Other }
}

/// Returns whether the statement is an `if` without `else`: a condition that is never true already omits it.
fn is_condition(stmt: &Stmt) -> bool {
    matches!(stmt, Stmt::Expr(Expr::If(branch), _) if branch.else_branch.is_none())
        || matches!(stmt, Stmt::Expr(Expr::While(_), _))
}

/// Returns whether a pattern binds a name.
fn binds(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) | Pat::Rest(_) => false,
        Pat::Type(typed) => binds(&typed.pat),
        Pat::Struct(fields) => fields.fields.iter().any(|field| binds(&field.pat)),
        Pat::Tuple(tuple) => tuple.elems.iter().any(binds),
        Pat::TupleStruct(tuple) => tuple.elems.iter().any(binds),
        _ => true,
    }
}

/// Returns the name of a guard that is never read: `_held`.
fn unread(local: &Local) -> Option<String> {
    let pattern = match &local.pat {
        Pat::Type(typed) => &*typed.pat,
        pattern => pattern,
    };
    match pattern {
        Pat::Ident(name) if name.ident.to_string().starts_with('_') => Some(name.ident.to_string()),
        _ => None,
    }
}
