//! What of the template language may be used.
//!
//! Everything that is not listed is refused, when a subscription is registered and not when
//! an event is to be sent. The parser itself recurses over some constructs without counting
//! (`- - - … 1`, `elif` after `elif`), so their number is bounded before it sees them.

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::{Span, Token, parse, tokenize};

use super::{complaint, filters};
use crate::domain::limits;

/// Checks a template. The error is the reason for refusal, and names the line.
pub(super) fn check(text: &str) -> Result<(), String> {
    check_tokens(text)?;
    let tree = parse(text, "template", Default::default()).map_err(|error| complaint(&error))?;
    statement(&tree)
}

fn check_tokens(text: &str) -> Result<(), String> {
    let (mut in_tag, mut branches) = (0, 0);
    for token in tokenize(text, false, Default::default()) {
        let (token, span) = token.map_err(|error| complaint(&error))?;
        match token {
            Token::BlockStart | Token::VariableStart => in_tag = 0,
            Token::Ident("elif") => branches += 1,
            _ => in_tag += 1,
        }
        if in_tag > limits::TEMPLATE_TAG_TOKENS {
            return Err(on_line(span, "has a tag that is too long"));
        }
        if branches > limits::TEMPLATE_BRANCHES {
            return Err(on_line(span, "has too many branches"));
        }
    }
    Ok(())
}

fn statement(statement: &Stmt<'_>) -> Result<(), String> {
    match statement {
        Stmt::Template(template) => statements(&template.children),
        Stmt::EmitRaw(_) => Ok(()),
        Stmt::EmitExpr(emitted) => expression(&emitted.expr),
        Stmt::IfCond(condition) => {
            expression(&condition.expr)?;
            statements(&condition.true_body)?;
            statements(&condition.false_body)
        }
        Stmt::ForLoop(repeated) if repeated.recursive => Err(on_line(repeated.span(), "has a recursive loop")),
        Stmt::ForLoop(repeated) => {
            target(&repeated.target)?;
            expression(&repeated.iter)?;
            repeated.filter_expr.as_ref().map_or(Ok(()), expression)?;
            statements(&repeated.body)?;
            statements(&repeated.else_body)
        }
        Stmt::Set(named) => {
            target(&named.target)?;
            expression(&named.expr)
        }
        Stmt::WithBlock(block) => {
            for (name, value) in &block.assignments {
                target(name)?;
                expression(value)?;
            }
            statements(&block.body)
        }
        Stmt::SetBlock(block) => Err(on_line(block.span(), "captures a block")),
        Stmt::FilterBlock(block) => Err(on_line(block.span(), "filters a block")),
        _ => Err("has a statement that is not available".into()),
    }
}

fn statements(all: &[Stmt<'_>]) -> Result<(), String> {
    all.iter().try_for_each(statement)
}

/// A name, or names, that values are given to.
fn target(name: &Expr<'_>) -> Result<(), String> {
    match name {
        Expr::Var(_) => Ok(()),
        Expr::Tuple(names) => names.items.iter().try_for_each(target),
        Expr::List(names) => names.items.iter().try_for_each(target),
        other => Err(on_line(other.span(), "gives a value to something that is no name")),
    }
}

fn expression(expr: &Expr<'_>) -> Result<(), String> {
    match expr {
        Expr::Var(_) | Expr::Const(_) => Ok(()),
        Expr::UnaryOp(operation) => expression(&operation.expr),
        Expr::GetAttr(part) => expression(&part.expr),
        Expr::GetItem(part) => all([&part.expr, &part.subscript_expr]),
        Expr::IfExpr(choice) => all([&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr)),
        Expr::Compare(compared) => all(std::iter::once(&compared.expr).chain(compared.ops.iter().map(|op| &op.expr))),
        Expr::BinOp(operation) => {
            all([&operation.left, &operation.right])?;
            check_growth(expr, operation.op)
        }
        Expr::Filter(filter) => {
            check_known(expr, "filter", filter.name, &filters::FILTERS)?;
            filter.expr.as_ref().map_or(Ok(()), expression)?;
            arguments(expr, &filter.args)
        }
        Expr::Test(test) => {
            check_known(expr, "test", test.name, &filters::TESTS)?;
            expression(&test.expr)?;
            arguments(expr, &test.args)
        }
        Expr::List(list) => constants(expr, &list.items),
        Expr::Tuple(tuple) => constants(expr, &tuple.items),
        Expr::Map(map) => constants(expr, &map.keys).and_then(|()| constants(expr, &map.values)),
        Expr::Slice(_) => Err(refusal(expr, "takes a slice")),
        Expr::Call(_) => Err(refusal(expr, "calls a function; there are only filters")),
    }
}

fn all<'e>(expressions: impl IntoIterator<Item = &'e Expr<'e>>) -> Result<(), String> {
    expressions.into_iter().try_for_each(expression)
}

fn arguments(call: &Expr<'_>, arguments: &[CallArg<'_>]) -> Result<(), String> {
    arguments.iter().try_for_each(|argument| match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) => expression(value),
        CallArg::PosSplat(_) | CallArg::KwargSplat(_) => Err(refusal(call, "unpacks arguments")),
    })
}

/// Of names, `[a, a]` would make something twice as large, and so on.
fn constants(list: &Expr<'_>, items: &[Expr<'_>]) -> Result<(), String> {
    if items.iter().all(|item| matches!(item, Expr::Const(_))) {
        return Ok(());
    }
    Err(refusal(list, "has a list or an object of something other than constants"))
}

/// `+` and `*` make longer strings and lists unless both sides are numbers, and a template
/// must show that they are: `payload.price|float * 100`.
fn check_growth(operation: &Expr<'_>, operator: BinOpKind) -> Result<(), String> {
    match operator {
        BinOpKind::Concat => Err(refusal(operation, "uses `~`; write the parts one after the other")),
        BinOpKind::Add | BinOpKind::Mul if !is_numeric(operation) => {
            Err(refusal(operation, "uses `+` or `*` on what may be no number; put |int or |float behind it"))
        }
        _ => Ok(()),
    }
}

fn is_numeric(expr: &Expr<'_>) -> bool {
    match expr {
        Expr::Const(constant) => constant.value.is_number(),
        // An argument may be a default, which is given back as it is.
        Expr::Filter(filter) => filters::FILTERS[..filters::NUMERIC].contains(&filter.name) && filter.args.is_empty(),
        Expr::UnaryOp(operation) => is_numeric(&operation.expr),
        Expr::BinOp(operation) => is_numeric(&operation.left) && is_numeric(&operation.right),
        _ => false,
    }
}

fn check_known(place: &Expr<'_>, kind: &str, name: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&name) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(refusal(place, &format!("uses a {kind} that is not available, `{shown}`")))
}

fn refusal(place: &Expr<'_>, reason: &str) -> String {
    on_line(place.span(), reason)
}

fn on_line(span: Span, reason: &str) -> String {
    format!("{reason} (line {})", span.start_line)
}
