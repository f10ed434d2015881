/**
 * Document validation in the browser: errors in the words of Python's
 * ``tinyckpt.documents.json_reader``. A number without a fraction is an integer here, however it is
 * written.
 */

export const BEYOND = 2 ** 63; // bytes and extents from here on belong to no machine
const DOCUMENT_VERSION = 2;
const KINDS = ["graph", "schedule", "trace"];
const MOST_SHOWN = 80; // characters of what is wrong

export class FormatError extends Error {}

/** The name of a value's type, as Python has it. @param {any} value */
export function typeName(value) {
  if (value === null || value === undefined) return "NoneType";
  if (Array.isArray(value)) return /** @type {any} */ (value).isTuple ? "tuple" : "list"; // of a pickle
  if (typeof value === "number") return Number.isInteger(value) ? "int" : "float";
  return { boolean: "bool", string: "str", object: "dict" }[typeof value];
}

/** A value as Python writes it in a sentence. @param {any} value */
export function plainText(value) {
  const words = { NoneType: "None", bool: value ? "True" : "False" }[typeName(value)] ?? String(value);
  if (typeof value !== "number") return words;
  return { NaN: "nan", Infinity: "inf", "-Infinity": "-inf" }[words] ?? words.replace(/e([+-])(\d)$/, "e$10$2");
}

/** A text in quotes, as Python writes it. @param {string} text */
export function quoted(text) {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escapes = { "\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\" };
  const inside = text.replace(/[\\\p{C}\u2028\u2029]/gu, (c) => escapes[c] ?? codeText(c));
  return `${quote}${quote === "'" ? inside.replaceAll("'", "\\'") : inside}${quote}`;
}

/** A character that does not print, by its number. @param {string} letter */
function codeText(letter) {
  const code = letter.codePointAt(0);
  const [mark, wide] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(wide, "0")}`;
}

/** A text with what does not print written out. @param {string} text */
export function printable(text) {
  return text.replace(/[\p{C}\u2028\u2029]/gu, (c) => quoted(c).slice(1, -1));
}

/** Some text, cut. @param {string} text */
export function shortened80(text) {
  return Array.from(text).slice(0, MOST_SHOWN).join("");
}

export class DocumentReader {
  /** @param {string} path what errors call the document */
  constructor(path) {
    this.path = path;
  }

  /** @returns {never} */
  fail(where, problem) {
    throw new FormatError(`${this.path}: ${where}: ${problem}`);
  }

  /** Parse JSON. @param {string} text @returns {any} */
  parse(text) {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new FormatError(
        `${this.path} is not a complete JSON document (${/** @type {Error} */ (error).message}); was the file cut short?`,
      );
    }
  }

  /** A document of one of the kinds that the page plays. @param {string} text @returns {any} */
  document(text) {
    const content = this.parse(text);
    const isObject = typeName(content) === "dict";
    const schema = isObject ? content.schema : undefined;
    if (!KINDS.some((kind) => schema === `tinyckpt.${kind}`)) {
      const legal = KINDS.map((kind) => `'tinyckpt.${kind}'`).join(", ");
      const other = Object.hasOwn(content ?? {}, "schema")
        ? `the schema is ${quoted(shortened80(plainText(schema)))}`
        : "it has no schema";
      const found = isObject ? other : `it is no object, but ${typeName(content)}`;
      throw new FormatError(`${this.path}: ${found}; expected one of ${legal}`);
    }
    if (content.version !== DOCUMENT_VERSION) {
      const found = shortened80(plainText(content.version));
      throw new FormatError(
        `${this.path}: version ${found} of ${schema}; this tinyckpt reads version ${DOCUMENT_VERSION}; newer files need a newer one`,
      );
    }
    return content;
  }

  /** One entry of an object. @param {string[]} kinds of types */
  get(document, key, kinds, where) {
    if (typeName(document) !== "dict") this.fail(where, `expected an object, got ${typeName(document)}`);
    if (!Object.hasOwn(document, key)) this.fail(where, `${quoted(key)} is missing`);
    return this.check(document[key], kinds, `${where}.${key}`);
  }

  /** One entry of an object, or what there is by default. */
  given(document, key, kinds, otherwise, where) {
    this.check(document, ["dict"], where);
    return Object.hasOwn(document, key) ? this.get(document, key, kinds, where) : otherwise;
  }

  check(value, kinds, where) {
    if (!kinds.includes(typeName(value))) this.fail(where, `got ${typeName(value)}, which is not legal here`);
    return value;
  }

  only(document, legal, where) {
    for (const key of Object.keys(document)) {
      if (!legal.includes(key))
        this.fail(where, `${quoted(shortened80(key))} means nothing here; legal are ${legal.join(", ")}`);
    }
  }

  row(value, length, where) {
    this.check(value, ["list"], where);
    if (value.length !== length) this.fail(where, `expected ${length} entries, got ${value.length}`);
    return value;
  }

  count(value, where, limit = null) {
    this.check(value, ["int"], where);
    if (value < 0 || (limit !== null && value >= limit)) {
      const bound = limit === null ? "" : ` and less than ${limit === BEYOND ? "9223372036854775808" : limit}`;
      this.fail(where, `${shortened80(plainText(value))} must be at least 0${bound}`);
    }
    return value;
  }

  counts(value, where, limit = null) {
    return this.check(value, ["list"], where).map((item, i) => this.count(item, `${where}[${i}]`, limit));
  }

  oneOf(value, legal, where) {
    if (!legal.includes(value))
      this.fail(where, `${quoted(shortened80(plainText(value)))} must be one of ${legal.join(", ")}`);
    return value;
  }

  number(value, where) {
    this.check(value, ["int", "float", "bool"], where);
    if (typeof value === "boolean" || !(value >= 0 && value < BEYOND)) {
      this.fail(where, `${shortened80(plainText(value))} must be a finite number of 0 or more`);
    }
    return value;
  }
}
