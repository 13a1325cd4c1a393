"""The timing model: what an instruction trace would cost on the chip. Modelled, never measured.

A trace becomes time in four steps, one module each: `costs` says how long an instruction keeps its
engine and when its result is there; `placement` gives tiles addresses, as a compiler would, so that
reused memory makes the new owner wait; `dependencies` finds what each instruction waits for; and
`schedule` runs the engines' in-order queues and the DMA engines event by event. `profile` puts the
result into words and tables. All figures come from `nki_emulator.hardware`.
"""
