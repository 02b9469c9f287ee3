/* All of the interface: see sharp_coll.h. */
#ifndef TRIBUTARY_SHARP_H
#define TRIBUTARY_SHARP_H

#include "version.h"
#include "sharp_coll.h"

#endif
