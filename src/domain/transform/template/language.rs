//! The subset of the template language that is allowed.
//!
//! Everything that is not listed here is refused when a subscription is registered, and not later
//! when an event is sent. The parser recurses over some constructs without a depth limit
//! (`- - - … 1`, `elif` after `elif`), so their number is checked before the parser runs.

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr, Stmt};
use minijinja::machinery::{Span, Token, parse, tokenize};

use super::{describe_error, filters};
use crate::domain::limits;

/// Checks a template. The error is the reason for refusal, with the line.
pub(super) fn check(text: &str) -> Result<(), String> {
    check_tokens(text)?;
    let tree = parse(text, "template", Default::default()).map_err(|error| describe_error(&error))?;
    check_statement(&tree)
}

fn check_tokens(text: &str) -> Result<(), String> {
    let (mut in_tag, mut branches) = (0, 0);
    for token in tokenize(text, false, Default::default()) {
        let (token, span) = token.map_err(|error| describe_error(&error))?;
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

fn check_statement(statement: &Stmt<'_>) -> Result<(), String> {
    match statement {
        Stmt::Template(template) => check_statements(&template.children),
        Stmt::EmitRaw(_) => Ok(()),
        Stmt::EmitExpr(output) => check_expression(&output.expr),
        Stmt::IfCond(condition) => {
            check_expression(&condition.expr)?;
            check_statements(&condition.true_body)?;
            check_statements(&condition.false_body)
        }
        Stmt::ForLoop(for_loop) if for_loop.recursive => Err(on_line(for_loop.span(), "has a recursive loop")),
        Stmt::ForLoop(for_loop) => {
            check_target(&for_loop.target)?;
            check_expression(&for_loop.iter)?;
            for_loop.filter_expr.as_ref().map_or(Ok(()), check_expression)?;
            check_statements(&for_loop.body)?;
            check_statements(&for_loop.else_body)
        }
        Stmt::Set(assignment) => {
            check_target(&assignment.target)?;
            check_expression(&assignment.expr)
        }
        Stmt::WithBlock(block) => {
            for (name, value) in &block.assignments {
                check_target(name)?;
                check_expression(value)?;
            }
            check_statements(&block.body)
        }
        Stmt::SetBlock(block) => Err(on_line(block.span(), "captures a block")),
        Stmt::FilterBlock(block) => Err(on_line(block.span(), "filters a block")),
        _ => Err("has a statement that is not available".into()),
    }
}

fn check_statements(statements: &[Stmt<'_>]) -> Result<(), String> {
    statements.iter().try_for_each(check_statement)
}

/// Checks the target of an assignment: a name, or several names.
fn check_target(name: &Expr<'_>) -> Result<(), String> {
    match name {
        Expr::Var(_) => Ok(()),
        Expr::Tuple(names) => names.items.iter().try_for_each(check_target),
        Expr::List(names) => names.items.iter().try_for_each(check_target),
        other => Err(on_line(other.span(), "gives a value to something that is no name")),
    }
}

fn check_expression(expr: &Expr<'_>) -> Result<(), String> {
    match expr {
        Expr::Var(_) | Expr::Const(_) => Ok(()),
        Expr::UnaryOp(operation) => check_expression(&operation.expr),
        Expr::GetAttr(part) => check_expression(&part.expr),
        Expr::GetItem(part) => check_all([&part.expr, &part.subscript_expr]),
        Expr::IfExpr(choice) => check_all([&choice.test_expr, &choice.true_expr].into_iter().chain(&choice.false_expr)),
        Expr::Compare(compared) => {
            check_all(std::iter::once(&compared.expr).chain(compared.ops.iter().map(|op| &op.expr)))
        }
        Expr::BinOp(operation) => {
            check_all([&operation.left, &operation.right])?;
            check_growth(expr, operation.op)
        }
        Expr::Filter(filter) => {
            check_known(expr, "filter", filter.name, &filters::FILTERS)?;
            filter.expr.as_ref().map_or(Ok(()), check_expression)?;
            check_arguments(expr, &filter.args)
        }
        Expr::Test(test) => {
            check_known(expr, "test", test.name, &filters::TESTS)?;
            check_expression(&test.expr)?;
            check_arguments(expr, &test.args)
        }
        Expr::List(list) => check_constants(expr, &list.items),
        Expr::Tuple(tuple) => check_constants(expr, &tuple.items),
        Expr::Map(map) => check_constants(expr, &map.keys).and_then(|()| check_constants(expr, &map.values)),
        Expr::Slice(_) => Err(refusal(expr, "takes a slice")),
        Expr::Call(_) => Err(refusal(expr, "calls a function; there are only filters")),
    }
}

fn check_all<'e>(expressions: impl IntoIterator<Item = &'e Expr<'e>>) -> Result<(), String> {
    expressions.into_iter().try_for_each(check_expression)
}

fn check_arguments(call: &Expr<'_>, arguments: &[CallArg<'_>]) -> Result<(), String> {
    arguments.iter().try_for_each(|argument| match argument {
        CallArg::Pos(value) | CallArg::Kwarg(_, value) => check_expression(value),
        CallArg::PosSplat(_) | CallArg::KwargSplat(_) => Err(refusal(call, "unpacks arguments")),
    })
}

/// Allows only constants in a list: with variables, `[a, a]` would double the size at every step.
fn check_constants(list: &Expr<'_>, items: &[Expr<'_>]) -> Result<(), String> {
    if items.iter().all(|item| matches!(item, Expr::Const(_))) {
        return Ok(());
    }
    Err(refusal(list, "has a list or an object of something other than constants"))
}

/// Refuses operators whose result may be larger than their operands. `+` and `*` make longer strings
/// and lists unless both sides are numbers, so both sides must be numeric expressions:
/// `payload.price|float * 100`.
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
        // An argument may be a default, which the filter returns unchanged and which may be no number.
        Expr::Filter(filter) => filters::FILTERS[..filters::NUMERIC].contains(&filter.name) && filter.args.is_empty(),
        Expr::UnaryOp(operation) => is_numeric(&operation.expr),
        Expr::BinOp(operation) => is_numeric(&operation.left) && is_numeric(&operation.right),
        _ => false,
    }
}

fn check_known(expr: &Expr<'_>, kind: &str, name: &str, known: &[&str]) -> Result<(), String> {
    if known.contains(&name) {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(refusal(expr, &format!("uses a {kind} that is not available, `{shown}`")))
}

fn refusal(expr: &Expr<'_>, reason: &str) -> String {
    on_line(expr.span(), reason)
}

fn on_line(span: Span, reason: &str) -> String {
    format!("{reason} (line {})", span.start_line)
}
