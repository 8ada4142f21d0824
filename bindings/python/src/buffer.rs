//! Arrays: numbers read from objects that have them in memory, such as NumPy's arrays, and numbers passed to Python.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ops::Range;

use bristlecone::dynamic::{Datum, Kind};
use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::convert::{Role, range};

/// Bytes that own the memory of a Python array, as long as it lives. They are not read here again.
#[pyclass(frozen, module = "bristlecone._bristlecone")]
pub struct Buffer {
    first: *mut c_void,
    bytes: usize,
    _held: Box<dyn Any + Send + Sync>,
}

// SAFETY: the bytes live in the held value; a program that has the array must prevent its threads from writing
// meanwhile, as with all arrays.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Buffer {
    pub fn new<T: Copy + Send + Sync + 'static>(mut numbers: Vec<T>) -> Self {
        let (first, bytes) = (numbers.as_mut_ptr().cast(), size_of_val(&numbers[..]));
        Self { first, bytes, _held: Box::new(numbers) }
    }
}

#[pymethods]
impl Buffer {
    /// Exposes the bytes.
    ///
    /// # Safety
    ///
    /// `view` must be a view to be filled in, or null.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (first, bytes) = (slf.get().first, slf.get().bytes);
        // SAFETY: the view's reference to `slf` keeps the bytes alive, and they are writable.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), first, bytes as isize, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A number of an array.
#[derive(Clone, Copy, Debug)]
enum Number {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Bool(bool),
}

/// The numbers of an array, readable while attached to the interpreter.
pub struct Column {
    buffer: PyUntypedBuffer,
    element: ElementType,
    stride: isize,
}

impl fmt::Debug for Column {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("element", &self.element).finish_non_exhaustive()
    }
}

impl Column {
    /// Returns the numbers of an object, if it has them in memory, in native byte order.
    pub fn of(it: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let Ok(buffer) = PyUntypedBuffer::get(it) else { return Ok(None) };
        let element = match buffer.format().to_bytes() {
            [_] | [b'@' | b'=' | b'<', _] => ElementType::from_format(buffer.format()),
            _ => ElementType::Unknown,
        };
        if matches!(element, ElementType::Unknown | ElementType::Float { bytes: 2 })
            || buffer.suboffsets().is_some()
        {
            return Ok(None);
        }
        match *buffer.strides() {
            [stride] => Ok(Some(Self { buffer, element, stride })),
            _ => Err(PyValueError::new_err("an array of one dimension is expected")),
        }
    }

    pub fn len(&self) -> usize {
        self.buffer.item_count()
    }

    /// Returns the numbers in a range of indices, if they are `u64`. Python owns them, hence `_py`.
    pub fn words(&self, _py: Python<'_>, some: Range<usize>) -> impl Iterator<Item = u64> {
        assert!(self.is_u64(), "numbers of another type");
        let some = some.start.min(self.len())..some.end.min(self.len());
        // SAFETY: within the buffer, which holds `u64`s.
        some.map(|index| unsafe { self.at(index).cast::<u64>().read_unaligned() })
    }

    pub fn is_u64(&self) -> bool {
        self.element == ElementType::UnsignedInteger { bytes: 8 }
    }

    fn at(&self, index: usize) -> *const u8 {
        assert!(index < self.len(), "beyond the array");
        // Within the buffer, according to its owner.
        self.buffer.buf_ptr().cast::<u8>().wrapping_offset(index as isize * self.stride)
    }

    fn number(&self, _py: Python<'_>, index: usize) -> Number {
        macro_rules! read {
            ($type:ty) => {
                // SAFETY: within the buffer, which holds numbers of this type at any alignment.
                unsafe { self.at(index).cast::<$type>().read_unaligned() }.into()
            };
        }
        match self.element {
            ElementType::UnsignedInteger { bytes: 1 } => Number::Unsigned(read!(u8)),
            ElementType::UnsignedInteger { bytes: 2 } => Number::Unsigned(read!(u16)),
            ElementType::UnsignedInteger { bytes: 4 } => Number::Unsigned(read!(u32)),
            ElementType::UnsignedInteger { .. } => Number::Unsigned(read!(u64)),
            ElementType::SignedInteger { bytes: 1 } => Number::Signed(read!(i8)),
            ElementType::SignedInteger { bytes: 2 } => Number::Signed(read!(i16)),
            ElementType::SignedInteger { bytes: 4 } => Number::Signed(read!(i32)),
            ElementType::SignedInteger { .. } => Number::Signed(read!(i64)),
            ElementType::Float { bytes: 4 } => Number::Float(read!(f32)),
            ElementType::Float { .. } => Number::Float(read!(f64)),
            ElementType::Bool | ElementType::Unknown => {
                let byte: u8 = read!(u8);
                Number::Bool(byte != 0)
            }
        }
    }

    /// Returns a number as a datum of a kind.
    pub fn datum(&self, py: Python<'_>, kind: &Kind, role: Role, index: usize) -> PyResult<Datum<'static>> {
        let number = self.number(py, index);
        macro_rules! integer {
            ($variant:ident) => {
                match number {
                    Number::Unsigned(it) => it.try_into().ok().map(Datum::$variant),
                    Number::Signed(it) => it.try_into().ok().map(Datum::$variant),
                    _ => return Err(self.unlike(kind, role)),
                }
            };
        }
        let datum = match (kind, number) {
            (Kind::U8, _) => integer!(U8),
            (Kind::U16, _) => integer!(U16),
            (Kind::U32, _) => integer!(U32),
            (Kind::U64, _) => integer!(U64),
            (Kind::U128, _) => integer!(U128),
            (Kind::I8, _) => integer!(I8),
            (Kind::I16, _) => integer!(I16),
            (Kind::I32, _) => integer!(I32),
            (Kind::I64, _) => integer!(I64),
            (Kind::I128, _) => integer!(I128),
            (Kind::F64, Number::Float(it)) => Some(Datum::F64(it)),
            (Kind::F64, Number::Unsigned(it)) => Some(Datum::F64(it as f64)),
            (Kind::F64, Number::Signed(it)) => Some(Datum::F64(it as f64)),
            (Kind::F32, Number::Float(it)) => {
                let narrow = it as f32;
                (narrow.is_finite() || !it.is_finite()).then_some(Datum::F32(narrow))
            }
            (Kind::Bool, Number::Bool(it)) => Some(Datum::Bool(it)),
            _ => return Err(self.unlike(kind, role)),
        };
        datum.ok_or_else(|| {
            let shown = match number {
                Number::Unsigned(it) => it.to_string(),
                Number::Signed(it) => it.to_string(),
                Number::Float(it) => it.to_string(),
                Number::Bool(it) => it.to_string(),
            };
            let range = range(kind).map(|range| format!(" ({range})")).unwrap_or_default();
            PyOverflowError::new_err(format!(
                "{shown}, at {index}, is no {} of type {kind}{range}",
                role.name()
            ))
        })
    }

    #[cold]
    fn unlike(&self, kind: &Kind, role: Role) -> PyErr {
        let format = self.buffer.format().to_string_lossy();
        PyTypeError::new_err(format!("an array of format {format:?} has no {}s of type {kind}", role.name()))
    }
}

/// A column that grows, of the kind of a tree's keys or values.
#[derive(Debug)]
pub enum Grown {
    Bool(Vec<u8>),
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    I8(Vec<i8>),
    I16(Vec<i16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
    /// End of each text or byte string, after a 0, and all their bytes.
    Bytes(Vec<i64>, Vec<u8>),
    /// Data of other kinds.
    Data(Vec<Datum<'static>>),
}

impl Grown {
    /// Returns an empty column.
    pub fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::U8 => Self::U8(Vec::new()),
            Kind::U16 => Self::U16(Vec::new()),
            Kind::U32 => Self::U32(Vec::new()),
            Kind::U64 => Self::U64(Vec::new()),
            Kind::I8 => Self::I8(Vec::new()),
            Kind::I16 => Self::I16(Vec::new()),
            Kind::I32 => Self::I32(Vec::new()),
            Kind::I64 => Self::I64(Vec::new()),
            Kind::F32 => Self::F32(Vec::new()),
            Kind::F64 => Self::F64(Vec::new()),
            Kind::Str | Kind::Bytes | Kind::Json | Kind::Postcard => Self::Bytes(vec![0], Vec::new()),
            _ => Self::Data(Vec::new()),
        }
    }

    /// Appends a datum of the column's kind; zero, or an empty one, for an absent datum.
    pub fn push(&mut self, datum: Option<Datum<'static>>) {
        macro_rules! number {
            ($numbers:expr, $variant:ident) => {
                $numbers.push(if let Some(Datum::$variant(it)) = datum { it } else { Default::default() })
            };
        }
        match self {
            Self::Bool(bools) => bools.push(u8::from(matches!(datum, Some(Datum::Bool(true))))),
            Self::U8(numbers) => number!(numbers, U8),
            Self::U16(numbers) => number!(numbers, U16),
            Self::U32(numbers) => number!(numbers, U32),
            Self::U64(numbers) => number!(numbers, U64),
            Self::I8(numbers) => number!(numbers, I8),
            Self::I16(numbers) => number!(numbers, I16),
            Self::I32(numbers) => number!(numbers, I32),
            Self::I64(numbers) => number!(numbers, I64),
            Self::F32(numbers) => number!(numbers, F32),
            Self::F64(numbers) => number!(numbers, F64),
            Self::Bytes(ends, bytes) => {
                match &datum {
                    Some(Datum::Str(text) | Datum::Json(text)) => bytes.extend_from_slice(text.as_bytes()),
                    Some(Datum::Bytes(it) | Datum::Postcard(it)) => bytes.extend_from_slice(it),
                    _ => {}
                }
                ends.push(bytes.len() as i64);
            }
            Self::Data(data) => data.push(datum.unwrap_or(Datum::Unit)),
        }
    }

    /// Returns the column as Python objects: `Buffer`s, or a list.
    pub fn python<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        fn buffer<T: Copy + Send + Sync + 'static>(
            py: Python<'_>,
            numbers: Vec<T>,
        ) -> PyResult<Bound<'_, PyAny>> {
            Ok(Bound::new(py, Buffer::new(numbers))?.into_any())
        }
        match self {
            Self::Bool(it) | Self::U8(it) => buffer(py, it),
            Self::U16(it) => buffer(py, it),
            Self::U32(it) => buffer(py, it),
            Self::U64(it) => buffer(py, it),
            Self::I8(it) => buffer(py, it),
            Self::I16(it) => buffer(py, it),
            Self::I32(it) => buffer(py, it),
            Self::I64(it) => buffer(py, it),
            Self::F32(it) => buffer(py, it),
            Self::F64(it) => buffer(py, it),
            Self::Bytes(ends, bytes) => {
                Ok((buffer(py, ends)?, buffer(py, bytes)?).into_pyobject(py)?.into_any())
            }
            Self::Data(data) => {
                let data: Vec<_> =
                    data.iter().map(|datum| crate::convert::python(py, datum)).collect::<PyResult<_>>()?;
                Ok(data.into_pyobject(py)?.into_any())
            }
        }
    }
}
