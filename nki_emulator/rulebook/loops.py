"""Rules of registers and dynamic loops."""

from .pages import DYNAMIC_LOOPS, GUIDE, ISA, LANGUAGE, MIGRATION, Rule, own

_RULES = f"{MIGRATION}: Rules for migrated loops"
_REGISTERS = f"{GUIDE}: Dynamic Control Flow"

RULES = {
    "dynamic-loop-body": Rule(
        "every iteration of a dynamic loop issues the same instructions on the same tiles: the "
        "chip has one copy of the body",
        f"{DYNAMIC_LOOPS}: Hardware Lowering",
    ),
    "dynamic-loop-break": Rule(
        "a counted loop is not left in the middle",
        f"{DYNAMIC_LOOPS}: Hardware Lowering; {LANGUAGE}: fori_loop",
    ),
    "dynamic-loop-endless": Rule(
        "a loop ends within the emulator's limit of iterations",
        own("the emulator stops instead of hanging"),
    ),
    "dynamic-loop-function": Rule(
        "the body of a loop is a function",
        f"{LANGUAGE}: fori_loop, while_loop",
    ),
    "dynamic-loop-scope": Rule(
        "a tile or register that is made in the body of a dynamic loop is not used outside it",
        _RULES,
    ),
    "dynamic-loop-step": Rule(
        "the step is a positive integer that is known when the kernel is built",
        f"{LANGUAGE}: fori_loop, dynamic_range; {DYNAMIC_LOOPS}: Parameter Constraints",
    ),
    "fori-body-result": Rule(
        "the body of fori_loop returns nothing",
        _RULES,
    ),
    "no-reorder-loop": Rule(
        "there is no dynamic loop in a no_reorder region",
        f"{LANGUAGE}: no_reorder; {DYNAMIC_LOOPS}: Interaction with no_reorder",
    ),
    "register-arithmetic": Rule(
        "registers take no Python operators",
        f"{_RULES}; {ISA}: VirtualRegister (note)",
    ),
    "register-carried": Rule(
        "no register carries a value between iterations or out of a loop",
        _RULES,
    ),
    "register-condition": Rule(
        "a register is no condition of a Python statement, not of the deprecated while either",
        f"{ISA}: VirtualRegister (note: of the two front-ends the tracer refuses it)",
    ),
    "register-conversion": Rule(
        "a register is not converted to a Python number",
        f"{ISA}: VirtualRegister (note)",
    ),
    "register-dtype": Rule(
        "a register is loaded from and stored to 8-, 16- or 32-bit integers or float32, of its "
        "own kind",
        _REGISTERS,
    ),
    "register-float": Rule(
        "an index, bound or condition is an integer register",
        own("registers may hold float32, and no document says what such an index would be"),
    ),
    "register-frozen": Rule(
        "the register of a counted loop is not written",
        f"{_REGISTERS} (note); {LANGUAGE}: fori_loop",
    ),
    "register-immediate": Rule(
        "a register takes an integer or another register",
        f"{ISA}: register_alloc, register_move",
    ),
    "register-operand": Rule(
        "the operand is a register from register_alloc",
        f"{ISA}: register_move, register_load, register_store",
    ),
    "register-psum": Rule(
        "registers are loaded from and stored to SBUF and HBM, not PSUM",
        f"{ISA}: register_load, register_store",
    ),
    "register-range": Rule(
        "a value fits in 32 bits, and in the dtype that it is stored to",
        f"{ISA}: register_alloc, register_store",
    ),
    "register-shape": Rule(
        "a tensor that a register is loaded from or stored to has one element, [1] or [1, 1]",
        f"{ISA}: register_load, register_store",
    ),
    "register-unwritten": Rule(
        "a register has a value before it is read",
        f"{ISA}: register_alloc (None: uninitialized)",
    ),
    "while-body-result": Rule(
        "the body of while_loop returns the register of the next condition",
        _RULES,
    ),
    "while-condition": Rule(
        "the condition of while_loop is a register",
        f"{LANGUAGE}: while_loop",
    ),
}
