//! The syntax of GRUB's scripts: words, with quotes and variables in them, and the commands that they make.
//!
//! What is known are simple commands, `if`, `function`, `menuentry` and `submenu`. Loops are left out: nothing in them
//! is carried out.

use crate::error::Error;
use crate::limits::DEPTH_MAX;

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands there.
    Text(String),
    /// The value of a variable. Unless it is quoted, it may be several words.
    Variable {
        /// Its name.
        name: String,
        /// It stands in quotes.
        is_quoted: bool,
    },
}

/// A word.
pub type Word = Vec<Piece>;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A name and its arguments.
    Simple(Vec<Word>),
    /// Conditions, each with what is done if it is the first that holds; a last one without is `else`.
    If(Vec<(Vec<Command>, Vec<Command>)>),
    /// A choice of the menu, or a menu below it, with its words and what is in it.
    Menu {
        /// It is a menu.
        is_menu: bool,
        /// Title and options.
        words: Vec<Word>,
        /// What is in it.
        body: Vec<Command>,
    },
    /// A function.
    Function(String, Vec<Command>),
}

/// What words and signs there are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(Word),
    /// The end of a command.
    End,
    Open,
    Close,
}

/// The commands of a script.
///
/// # Errors
///
/// It is none, or lies too deep in itself.
pub fn parse(text: &str) -> Result<Vec<Command>, Error> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0 };
    let commands = parser.commands(&[], 0)?;
    match parser.at == tokens.len() {
        true => Ok(commands),
        false => Err(Error::Script("a block ends that has not begun")),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    let mut word: Option<Word> = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_between = matches!(letter, ' ' | '\t' | '\r' | '\n' | ';' | '{' | '}' | '&' | '|');
        if is_between && (word.is_none() || !matches!(letter, '{' | '}')) {
            tokens.extend(word.take().map(Token::Word));
            match letter {
                '\n' | ';' | '&' | '|' => tokens.push(Token::End),
                '{' => tokens.push(Token::Open),
                '}' => tokens.push(Token::Close),
                _ => {}
            }
            continue;
        }
        match letter {
            '#' if word.is_none() => while letters.next_if(|letter| *letter != '\n').is_some() {},
            '\\' => match letters.next() {
                Some('\n') | None => {}
                Some(letter) => add(word.get_or_insert_default(), letter),
            },
            '\'' => {
                let word = word.get_or_insert_default();
                word.push(Piece::Text(String::new()));
                loop {
                    match letters.next() {
                        None => return Err(Error::Script("a quote has no end")),
                        Some('\'') => break,
                        Some(letter) => add(word, letter),
                    }
                }
            }
            '"' => quoted(&mut letters, word.get_or_insert_default())?,
            '$' => variable(&mut letters, word.get_or_insert_default(), false),
            letter => add(word.get_or_insert_default(), letter),
        }
    }
    tokens.extend(word.map(Token::Word));
    Ok(tokens)
}

type Letters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn add(word: &mut Word, letter: char) {
    match word.last_mut() {
        Some(Piece::Text(text)) => text.push(letter),
        _ => word.push(Piece::Text(letter.into())),
    }
}

/// What is in double quotes.
fn quoted(letters: &mut Letters<'_>, word: &mut Word) -> Result<(), Error> {
    word.push(Piece::Text(String::new()));
    loop {
        match letters.next() {
            None => return Err(Error::Script("a quote has no end")),
            Some('"') => return Ok(()),
            Some('$') => variable(letters, word, true),
            Some('\\') => match letters.next() {
                Some('\n') | None => {}
                Some(letter @ ('"' | '\\' | '$')) => add(word, letter),
                Some(letter) => {
                    add(word, '\\');
                    add(word, letter);
                }
            },
            Some(letter) => add(word, letter),
        }
    }
}

/// What is behind a dollar sign.
fn variable(letters: &mut Letters<'_>, word: &mut Word, is_quoted: bool) {
    let is_braced = letters.next_if_eq(&'{').is_some();
    let is_name = |letter: &char| match is_braced {
        true => *letter != '}' && *letter != '\n',
        false => letter.is_ascii_alphanumeric() || matches!(letter, '_' | '?' | '@' | '#' | '*'),
    };
    let mut name = String::new();
    while let Some(letter) = letters.next_if(|letter| is_name(letter)) {
        name.push(letter);
    }
    if is_braced {
        letters.next_if_eq(&'}');
    }
    match name.is_empty() {
        true => add(word, '$'),
        false => word.push(Piece::Variable { name, is_quoted }),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
}

/// The word, if it is one without variables.
fn literal(word: &Word) -> Option<&str> {
    match word.as_slice() {
        [Piece::Text(text)] => Some(text),
        _ => None,
    }
}

impl Parser<'_> {
    /// The literal word that is next.
    fn keyword(&self) -> Option<&str> {
        match self.tokens.get(self.at) {
            Some(Token::Word(word)) => literal(word),
            _ => None,
        }
    }

    /// The commands up to one of these words, or to the end of a block.
    fn commands(&mut self, until: &[&str], depth: usize) -> Result<Vec<Command>, Error> {
        if depth > DEPTH_MAX {
            return Err(Error::Endless);
        }
        let mut commands = Vec::new();
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::End => self.at += 1,
                Token::Close => break,
                Token::Open => {
                    self.at += 1;
                    commands.extend(self.block_after_open(depth)?);
                }
                Token::Word(_) if self.keyword().is_some_and(|word| until.contains(&word)) => break,
                Token::Word(_) => commands.extend(self.command(depth)?),
            }
        }
        Ok(commands)
    }

    fn block_after_open(&mut self, depth: usize) -> Result<Vec<Command>, Error> {
        let body = self.commands(&[], depth + 1)?;
        match self.tokens.get(self.at) {
            Some(Token::Close) => self.at += 1,
            _ => return Err(Error::Script("a block has no end")),
        }
        Ok(body)
    }

    fn command(&mut self, depth: usize) -> Result<Option<Command>, Error> {
        let keyword = self.keyword().unwrap_or_default().to_owned();
        match keyword.as_str() {
            "if" => self.condition(depth).map(Some),
            "for" | "while" | "until" => self.skip_loop(depth),
            _ => {
                let words = self.words();
                if !matches!(self.tokens.get(self.at), Some(Token::Open)) {
                    return Ok(Some(Command::Simple(words)));
                }
                self.at += 1;
                let body = self.block_after_open(depth)?;
                let mut words = words.into_iter().skip(1);
                Ok(match keyword.as_str() {
                    "menuentry" | "submenu" => {
                        let is_menu = keyword == "submenu";
                        Some(Command::Menu { is_menu, words: words.collect(), body })
                    }
                    "function" => {
                        let name = words.next().as_ref().and_then(literal).map(str::to_owned);
                        name.map(|name| Command::Function(name, body))
                    }
                    // Nobody knows what is done with it.
                    _ => None,
                })
            }
        }
    }

    /// The words up to the end of a command.
    fn words(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some(Token::Word(word)) = self.tokens.get(self.at) {
            words.push(word.clone());
            self.at += 1;
        }
        words
    }

    fn condition(&mut self, depth: usize) -> Result<Command, Error> {
        let mut branches = Vec::new();
        loop {
            // Behind `if` or `elif`.
            self.at += 1;
            let condition = self.commands(&["then"], depth + 1)?;
            self.expect("then")?;
            let body = self.commands(&["elif", "else", "fi"], depth + 1)?;
            branches.push((condition, body));
            match self.keyword() {
                Some("elif") => {}
                Some("else") => {
                    self.at += 1;
                    branches.push((Vec::new(), self.commands(&["fi"], depth + 1)?));
                    break;
                }
                _ => break,
            }
        }
        self.expect("fi")?;
        Ok(Command::If(branches))
    }

    fn skip_loop(&mut self, depth: usize) -> Result<Option<Command>, Error> {
        self.at += 1;
        self.commands(&["do"], depth + 1)?;
        self.expect("do")?;
        self.commands(&["done"], depth + 1)?;
        self.expect("done")?;
        Ok(None)
    }

    fn expect(&mut self, word: &str) -> Result<(), Error> {
        match self.keyword() == Some(word) {
            true => self.at += 1,
            false => return Err(Error::Script("a condition or a loop has no end")),
        }
        Ok(())
    }
}
