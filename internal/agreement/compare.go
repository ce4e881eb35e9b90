package agreement

import "slices"

// Shown is what one proxy shows.
type Shown struct {
	// Proxy is who, for a person.
	Proxy string
	// Agreement is what.
	Agreement Agreement
}

// Difference is a part in which proxies do not agree.
type Difference struct {
	// Part is which.
	Part Name
	// Sides are the values there are, and who has each: the most proxies first, and
	// among equals whoever is named first. There are two at least.
	Sides []Side
}

// Side is a value of a part, and the proxies that have it.
type Side struct {
	// Part holds the value; its Hash is empty if the proxies do not show the part.
	Part Part
	// Proxies have it, in the order in which they were given.
	Proxies []string
}

// Compare names the parts in which proxies differ, in the order of Names and then of
// parts that only other versions know; none: they agree.
func Compare(all []Shown) []Difference {
	names := Names()
	for _, s := range all {
		for _, p := range s.Agreement.Parts {
			if !slices.Contains(names, p.Name) {
				names = append(names, p.Name)
			}
		}
	}
	var differences []Difference
	for _, name := range names {
		if sides := sidesOf(name, all); len(sides) > 1 {
			differences = append(differences, Difference{name, sides})
		}
	}
	return differences
}

// sidesOf groups proxies by what they have for a part.
func sidesOf(name Name, all []Shown) []Side {
	var sides []Side
	for _, s := range all {
		part, _ := s.Agreement.Find(name)
		i := slices.IndexFunc(sides, func(side Side) bool { return side.Part.Hash == part.Hash })
		if i < 0 {
			i = len(sides)
			sides = append(sides, Side{Part: part})
		}
		sides[i].Proxies = append(sides[i].Proxies, s.Proxy)
	}
	slices.SortStableFunc(sides, func(a, b Side) int { return len(b.Proxies) - len(a.Proxies) })
	return sides
}
