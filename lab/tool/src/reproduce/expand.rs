//! Makes the figures of a file at a scale.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::data::{Choice, File, Rows, Source, Values};
use super::figure::{Figure, Row, Said, Scale, X};
use super::names::Names;
use super::run::Run;
use super::take::Take;
use crate::bench::run::threads_here;

/// Returns the figures of a file. An error names the figure, its row and the key.
pub fn figures(file: &File, scale: Scale) -> Result<Vec<Figure>, String> {
    file.figures.iter().map(|figure| expand(file, figure, scale)).collect()
}

fn expand(file: &File, figure: &Rows, scale: Scale) -> Result<Figure, String> {
    let title = figure.title.as_ref().and_then(|title| title.split_once(": "));
    let (name, title) = title.ok_or_else(|| format!("figure {:?}: no title NUMBER: TITLE", figure.title))?;
    let within = |what: String| format!("figure {name}{what}");
    let kind = figure.kind.ok_or_else(|| within(", kind: it is missing".to_owned()))?;
    let in_paper = figure.keys.unwrap_or(file.keys);
    let is_space = figure.space.unwrap_or(false);
    let mut names = Names::default().with(&file.text);
    names.set("keys", if is_space { scale.keys_in_space(in_paper) } else { scale.keys(in_paper) });
    names.set("processors", threads_here());
    if let Some(mib) = figure.cache_mib {
        names.set("cache", scale.cache(in_paper, mib << 20));
    }
    let note = names.fill(figure.note.as_deref().unwrap_or_default());
    let note = note.map_err(|why| within(format!(", note: {why}")))?;
    let maker = Maker { lists: &file.lists, used: RefCell::default() };
    let (turn, mut rows) = (Turn { names, at: Vec::new() }, Vec::new());
    let made = maker.rows(figure, &Rows::default(), &turn, "", &mut rows);
    made.and_then(|()| maker.check(figure, "")).map_err(within)?;
    Ok(Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        kind,
        x: figure.axis.clone().unwrap_or_default(),
        logarithmic: figure.logarithmic.unwrap_or(false),
        rows,
        note,
    })
}

/// Makes the rows of a figure.
struct Maker<'a> {
    lists: &'a BTreeMap<String, Vec<Values>>,
    /// Cases that matched a row: place, field and case.
    used: RefCell<BTreeSet<(String, &'static str, String)>>,
}

/// One combination of the values of loops.
#[derive(Clone)]
struct Turn {
    names: Names,
    /// Position in each loop, number of its values, and the first of them as written; the outermost loop first.
    at: Vec<(usize, usize, String)>,
}

impl Maker<'_> {
    fn rows(
        &self,
        rows: &Rows,
        from: &Rows,
        turn: &Turn,
        place: &str,
        to: &mut Vec<Row>,
    ) -> Result<(), String> {
        let rows = inherit(rows, from);
        let turns = self.turns(&rows, turn).map_err(|why| format!("{place}, for: {why}"))?;
        for turn in &turns {
            for (at, inner) in rows.rows.iter().enumerate() {
                self.rows(inner, &rows, turn, &below(place, at), to)?;
            }
            if rows.rows.is_empty() {
                to.push(self.row(&rows, turn, place)?);
            }
        }
        Ok(())
    }

    /// Returns the combinations of the values of loops.
    fn turns(&self, rows: &Rows, turn: &Turn) -> Result<Vec<Turn>, String> {
        let mut turns = vec![turn.clone()];
        if let Some(odd) = rows.loops.iter().find(|names| names.len() != 1) {
            return Err(format!("a table of the array has one loop, not {:?}", odd.keys()));
        }
        for (names, source) in rows.loops.iter().flatten() {
            let values = match source {
                Source::Here(values) => values,
                Source::List(name) => self.lists.get(name).ok_or_else(|| format!("unknown list {name}"))?,
            };
            let names: Vec<&str> = names.split(' ').collect();
            if let Some(odd) = values.iter().find(|values| values.all().len() != names.len()) {
                return Err(format!("{odd:?} does not have a value for each of {names:?}"));
            }
            let with = |turn: &Turn, at: usize, value: &Values| {
                let mut turn = turn.clone();
                names.iter().zip(value.all()).for_each(|(name, value)| turn.names.set(name, value));
                turn.at.push((at, values.len(), value.all()[0].to_string()));
                turn
            };
            turns = turns
                .iter()
                .flat_map(|turn| values.iter().enumerate().map(move |(at, value)| with(turn, at, value)))
                .collect();
        }
        turns.iter_mut().for_each(|turn| turn.names = turn.names.with(&rows.with));
        Ok(turns)
    }

    fn row(&self, rows: &Rows, turn: &Turn, place: &str) -> Result<Row, String> {
        let within = |key: &'static str| move |why: String| format!("{place}, {key}: {why}");
        let names = &turn.names;
        // A name in place of a field that no row sets.
        let named = |key: &'static str| names.has(key).then(|| format!("{{{key}}}"));
        let optional = |key, text: &Option<String>| {
            let text = text.clone().or_else(|| named(key));
            text.map(|text| names.fill(&text)).transpose().map_err(within(key))
        };
        let needed = |key, text: &Option<String>| {
            optional(key, text)?.ok_or_else(|| within(key)("it is missing".to_owned()))
        };
        let metric = needed("metric", &rows.metric)?;
        let (metric, unit) =
            metric.strip_suffix(']').and_then(|metric| metric.rsplit_once(" [")).unwrap_or((&metric, ""));
        let take = Take::of(&needed("value", &rows.value)?).map_err(within("value"))?;
        let mut runs = vec![Run::of(&needed("run", &rows.run)?).map_err(within("run"))?];
        if let Some(others) = &rows.against {
            let line = names.with(others).fill(rows.run.as_deref().unwrap_or_default());
            runs.push(line.and_then(|line| Run::of(&line)).map_err(within("against"))?);
        }
        if runs.get(1) == runs.first() {
            return Err(within("against")("both runs are the same".to_owned()));
        }
        if take.runs() != runs.len() {
            return Err(within("against")(format!("the value compares {} runs", take.runs())));
        }
        let chosen = |key, choice: &Option<Choice>| -> Result<Option<String>, String> {
            let text = match choice {
                Some(choice) => self.choose(choice, &turn.at, (place, key)).map_err(within(key))?,
                None => named(key),
            };
            text.map(|text| names.fill(&text)).transpose().map_err(within(key))
        };
        let title = || names.fill("{design.title}").map_err(within("series"));
        let at = optional("place", &rows.place)?;
        let said = chosen("paper", &rows.paper)?.map(|said| Said::of(&said, at.as_deref())).transpose();
        Ok(Row {
            series: optional("series", &rows.series)?.map_or_else(title, Ok)?,
            design: runs[0].design().to_owned(),
            x: optional("x", &rows.x)?.map_or(X::None, |x| X::of(&x)),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            runs,
            take,
            paper: said.map_err(within("paper"))?,
            remark: chosen("remark", &rows.remark)?.unwrap_or_default(),
        })
    }

    /// Returns the value of a row, if it has one.
    fn choose(
        &self,
        choice: &Choice,
        at: &[(usize, usize, String)],
        (place, key): (&str, &'static str),
    ) -> Result<Option<String>, String> {
        match choice {
            Choice::All(value) => Ok(Some(value.to_string())),
            Choice::Grid(_) => in_grid(choice, at),
            Choice::Cases(cases) => {
                let is_met = |case: &str| {
                    let parts: Vec<&str> = case.split(" / ").collect();
                    let values = at.iter().rev().map(|(.., value)| value.as_str());
                    parts.len() <= at.len()
                        && parts.iter().rev().zip(values).all(|(part, value)| *part == "*" || *part == value)
                };
                let anys = |case: &str| case.split(" / ").filter(|part| *part == "*").count();
                let mut met: Vec<_> = cases.iter().filter(|(case, _)| is_met(case)).collect();
                met.sort_by_key(|(case, _)| anys(case));
                if let [(one, _), (other, _), ..] = met[..]
                    && anys(one) == anys(other)
                {
                    return Err(format!("{one:?} and {other:?} match one row"));
                }
                let Some((case, value)) = met.first() else { return Ok(None) };
                self.used.borrow_mut().insert((place.to_owned(), key, (*case).clone()));
                Ok(Some(value.to_string()))
            }
        }
    }

    /// Fails if a case matches no row, or rows within a figure have fields of a figure.
    fn check(&self, rows: &Rows, place: &str) -> Result<(), String> {
        for (key, choice) in [("paper", &rows.paper), ("remark", &rows.remark)] {
            let Some(Choice::Cases(cases)) = choice else { continue };
            let used = self.used.borrow();
            let is_used = |case: &&String| used.contains(&(place.to_owned(), key, (*case).clone()));
            if let Some(unused) = cases.keys().find(|case| !is_used(case)) {
                return Err(format!("{place}, {key}: no row is {unused:?}"));
            }
        }
        for (at, inner) in rows.rows.iter().enumerate() {
            let place = below(place, at);
            if let Some(key) = key_of_a_figure(inner) {
                return Err(format!("{place}, {key}: it belongs to the figure"));
            }
            self.check(inner, &place)?;
        }
        Ok(())
    }
}

/// Returns the place of rows within others.
fn below(place: &str, at: usize) -> String {
    format!("{place}{}{}", if place.is_empty() { ", row " } else { "." }, at + 1)
}

fn key_of_a_figure(rows: &Rows) -> Option<&'static str> {
    let Rows { title, kind, axis, logarithmic, note, keys, space, cache_mib, .. } = rows;
    let keys = [
        ("title", title.is_some()),
        ("kind", kind.is_some()),
        ("axis", axis.is_some()),
        ("logarithmic", logarithmic.is_some()),
        ("note", note.is_some()),
        ("keys", keys.is_some()),
        ("space", space.is_some()),
        ("cache_mib", cache_mib.is_some()),
    ];
    keys.into_iter().find(|(_, is_there)| *is_there).map(|(key, _)| key)
}

/// Returns the value at the positions of the innermost loops; `None` for `-`.
fn in_grid(choice: &Choice, at: &[(usize, usize, String)]) -> Result<Option<String>, String> {
    let depth = std::iter::successors(Some(choice), |choice| match choice {
        Choice::Grid(values) => values.first(),
        _ => None,
    });
    let levels = depth.count() - 1;
    let inner =
        at.len().checked_sub(levels).ok_or_else(|| format!("{levels} levels of {} loops", at.len()))?;
    let mut choice = choice;
    for (position, length, _) in &at[inner..] {
        match choice {
            Choice::Grid(values) if values.len() == *length => choice = &values[*position],
            Choice::Grid(values) => return Err(format!("{} values of {length}", values.len())),
            _ => return Err("its levels differ".to_owned()),
        }
    }
    match choice {
        Choice::All(value) => Ok(Some(value.to_string()).filter(|value| value != "-")),
        _ => Err("its levels differ".to_owned()),
    }
}

/// Returns rows with the fields that they inherit.
fn inherit(rows: &Rows, from: &Rows) -> Rows {
    let or = |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
    Rows {
        series: or(&rows.series, &from.series),
        x: or(&rows.x, &from.x),
        metric: or(&rows.metric, &from.metric),
        run: or(&rows.run, &from.run),
        value: or(&rows.value, &from.value),
        place: or(&rows.place, &from.place),
        ..rows.clone()
    }
}
