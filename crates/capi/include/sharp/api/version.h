/* The version of the interface, for the preprocessor: `#if SHARP_API > SHARP_VERSION(3, 0)`. */
#ifndef TRIBUTARY_SHARP_VERSION_H
#define TRIBUTARY_SHARP_VERSION_H

#define SHARP_MAJOR_BIT 24
#define SHARP_MINOR_BIT 16
#define SHARP_VERSION(major, minor) (((major) << SHARP_MAJOR_BIT) | ((minor) << SHARP_MINOR_BIT))

/* From 3.1 on clients ask for 8-bit types and bfloat16, from 3.7 on they put no bound on lengths. */
#define SHARP_API SHARP_VERSION(3, 7)

/* Says that this is Tributary's header. Binaries that were built with another one must be rebuilt: the
 * names are the same, the numbers and layouts are not. */
#define SHARP_TRIBUTARY 1

#endif
