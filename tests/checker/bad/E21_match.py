"""match."""

import nki


@nki.jit
def kernel(x, mode):
    match mode:  # expect: E21-match
        # instead: if mode != None:
        case "copy":
            # instead: if mode == "copy":
            print("copy")
        case _:
            # instead: else:
            print(mode)
    return x
