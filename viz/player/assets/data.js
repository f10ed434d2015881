/**
 * Types of a page's data, as ``viz/player/data.py`` writes it, with its columns unpacked; and of a
 * trace with what is derived from it. No code: pages leave this module out.
 *
 * @import { Lists } from "./columns.js"
 * @import { Axis } from "./axis.js"
 * @import { Blocks } from "./blocks.js"
 * @import { History } from "./state.js"
 */

/**
 * Values of a graph, an entry each.
 *
 * @typedef {object} Values
 * @property {string[]} names
 * @property {string[]} specs shape and dtype
 * @property {Float64Array} nbytes of its own: 0 for views
 * @property {Int32Array} bases the value that it is a view of; -1 for none
 * @property {Float64Array} sizes bytes of its shape
 * @property {Int32Array} producers -1 for sources
 * @property {Int32Array} results ids of those that the caller receives
 */

/**
 * Operators of a graph, an entry each.
 *
 * @typedef {object} Operators
 * @property {string[]} names
 * @property {string[]} kinds
 * @property {string[]} scopes
 * @property {Float64Array} workspace bytes
 * @property {Float64Array} flops
 * @property {Int32Array} adjoints the forward operator that it differentiates; -1 for none
 * @property {Lists} inputs
 * @property {Lists} outputs
 */

/**
 * @typedef {object} Graph
 * @property {string} name
 * @property {number} forward_count operators of the forward pass, which come first
 * @property {Values} data
 * @property {Operators} operators
 * @property {View[]} views the whole graph, and what its groups open
 * @property {Uint8Array} [staying] by value, whether it is memory of a gradient that stays
 * @property {any} [planning] inputs of the lab's planner
 * @property {number} [leastPeak] what no schedule has less room than
 * @property {number} [storeAllPeak]
 * @property {Int32Array} [firstReader] by value, the first backward operator that reads it
 */

/**
 * Polylines of arrows between cells, in tenths of a pixel.
 *
 * @typedef {object} Arrows
 * @property {Int32Array} first points of arrow i are first[i]..first[i+1]
 * @property {Int32Array} sources cells
 * @property {Int32Array} targets cells
 * @property {Int32Array} x
 * @property {Int32Array} y
 */

/**
 * A drawn part of a graph: cells, which are operators or groups of them, in tenths of a pixel.
 *
 * @typedef {object} View
 * @property {string} title
 * @property {number | null} parent the view that it was opened from
 * @property {Record<string, number>} opens views that cells open
 * @property {number} width
 * @property {number} height
 * @property {number} diameter
 * @property {number} head
 * @property {number} line
 * @property {Int32Array} widths
 * @property {Int32Array} heights
 * @property {string[]} labels
 * @property {Int32Array} points the size of each label
 * @property {string[]} titles
 * @property {string[]} rows names of ledger rows
 * @property {Int32Array} mirrors the forward cell of a backward one; -1 for none
 * @property {Int32Array} groups whether it is a group
 * @property {Int32Array} backward whether it is of the backward pass
 * @property {Lists} operators of each cell
 * @property {Lists} data values of each cell
 * @property {Int32Array} x
 * @property {Int32Array} y
 * @property {Arrows} arrows
 * @property {Arrows} faint
 * @property {{text: string, left: number, right: number, y: number}[]} headings
 * @property {Int32Array} dots_x
 * @property {Int32Array} dots_y
 * @property {Float64Array} [sizes] bytes of each cell
 */

/**
 * A schedule's steps and description.
 *
 * @typedef {object} Trace
 * @property {number | any} [graph] which of the page's
 * @property {string} title
 * @property {string} subtitle
 * @property {string} policy
 * @property {string} note
 * @property {string} certificate
 * @property {string} strip_words
 * @property {{words: string, amount: number, dashes: number[]}[]} strip_lines
 * @property {number | null} budget
 * @property {Int32Array} verbs see VERBS
 * @property {Int32Array} targets operators, or values
 * @property {Int32Array | null} over by step in place the value that it overwrites, -1 for others
 * @property {any[]} bands
 * @property {Float64Array | null} host bytes on the host after each step
 * @property {Int32Array} checkpoints
 * @property {{data: Int32Array, reasons: string[]}} fates of values that the backward pass reads
 * @property {number | null} [reserved] bytes that PyTorch's caching allocator would reserve, if known
 * @property {string[] | null} source
 * @property {Int32Array} [lines] of each step in the source
 * @property {string} [no_source] why there is none
 * @property {{begin: Int32Array, end: Int32Array, makespan: number, words: string}} [times]
 * @property {any} [measured]
 */

/**
 * Live intervals: those of value d are first[d]..first[d+1].
 *
 * @typedef {{first: Int32Array, begins: Int32Array, ends: Int32Array}} Spans
 */

/**
 * What is derived from a trace, see ``modelOf``.
 *
 * @typedef {object} Derived
 * @property {number} id
 * @property {boolean} inNodes whether memory is counted in nodes
 * @property {number} unit bytes of what memory is counted in
 * @property {Graph} graph
 * @property {number} count of steps
 * @property {Int32Array} evaluations up to each step
 * @property {Int32Array} computes steps of evaluations
 * @property {Uint8Array} again by evaluation: whether its operator was evaluated before
 * @property {Spans} spans
 * @property {{first: Int32Array, order: Int32Array}} evaluatedAt by operator
 * @property {Set<number>} isCheckpoint
 * @property {Map<number, number>} fateOf
 * @property {Map<number, History>} histories by view
 * @property {Map<Axis, Float64Array>} places by axis
 * @property {{known: Blocks, endings?: any, placed?: any}} blocks
 * @property {any} readers
 * @property {any} runs
 * @property {Map<Axis, {steps: Int32Array, count: number}>} tickSteps
 * @property {Float64Array} live amounts of memory after each step
 * @property {Float64Array} peaks the most so far
 * @property {number} peakStep
 * @property {Int32Array | Float64Array} [measuredSteps] the step of each measured moment
 *
 * @typedef {Omit<Trace, "graph"> & Derived} Model
 */
